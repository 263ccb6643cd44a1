"""The pure core: a snapshot and a policy in, a valid, smaller array and its ledger out."""

from pipeline.dialects import DIALECTS
from pipeline.edits import apply_edits, count_after
from pipeline.run import STAGES, prune

__all__ = ["DIALECTS", "STAGES", "apply_edits", "count_after", "prune"]

"""The pure core: a snapshot and a policy in, a valid, smaller array and its ledger out."""

from pipeline.dialects import DIALECTS, check_format, known_formats
from pipeline.edits import apply_edits, count_after
from pipeline.render import render_compacted
from pipeline.run import STAGES, prune
from pipeline.standalone import (
    collapse_tool_chains,
    compress_tool_result,
    find_tool_results_for_call,
    prune_messages,
    validate_message_sequence,
)
from pipeline.strategies import STRATEGIES

__all__ = [
    "DIALECTS",
    "STAGES",
    "STRATEGIES",
    "apply_edits",
    "check_format",
    "collapse_tool_chains",
    "compress_tool_result",
    "count_after",
    "find_tool_results_for_call",
    "known_formats",
    "prune",
    "prune_messages",
    "render_compacted",
    "validate_message_sequence",
]

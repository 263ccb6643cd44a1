"""What crosses a process boundary: events, policy, edits, errors, codecs."""

from contracts.codec import MAX_BODY_BYTES, check_body, decode_snapshot, encode, raw
from contracts.errors import Code, Refused
from contracts.metrics import DeadLetter, Economics, Metrics, StageMetrics
from contracts.policy import Policy, load_policy
from contracts.presets import DEFAULT_PRESET, PRESETS
from contracts.result import Counts, Edit, PolicyRef, Pruned, Status, Tokens
from contracts.schema import json_schemas
from contracts.snapshot import Cache, Cut, Snapshot, Usage

__all__ = [
    "DEFAULT_PRESET",
    "MAX_BODY_BYTES",
    "PRESETS",
    "Cache",
    "Code",
    "Counts",
    "Cut",
    "DeadLetter",
    "Economics",
    "Edit",
    "Metrics",
    "Policy",
    "PolicyRef",
    "Pruned",
    "Refused",
    "Snapshot",
    "StageMetrics",
    "Status",
    "Tokens",
    "Usage",
    "check_body",
    "decode_snapshot",
    "encode",
    "json_schemas",
    "load_policy",
    "raw",
]

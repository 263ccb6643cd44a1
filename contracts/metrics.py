"""Metrics: one row per settled entry, whatever its outcome, and the record kept of a refused one."""

from msgspec import Struct


class StageMetrics(Struct, frozen=True):
    """What one stage did to one snapshot."""

    edits: int = 0
    tokens_saved: int = 0
    microseconds: int = 0


class Economics(Struct, frozen=True):
    """What a cut was weighed at: tokens kept behind its first edit, removed, and the calls after which it pays.

    Break-even is None where it never pays; the saving is over the policy's horizon, in tokens at the plain input price.
    """

    decision: str
    tokens_kept_after: int = 0
    tokens_removed: int = 0
    break_even_calls: float | None = None
    cached_tokens_lost: int = 0
    estimated_saving: float = 0.0


class Metrics(Struct, frozen=True, omit_defaults=True):
    """One settled entry: who, what came of it, how much it saved and how long it took."""

    entry_id: str
    snapshot_id: str
    conversation_id: str
    workload: str
    status: str
    worker: str
    reason: list[str] = []
    format: str = ""
    policy: str = ""
    sequence: int | None = None
    inbox: str = ""
    messages_before: int = 0
    messages_after: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    stages: dict[str, StageMetrics] = {}
    queue_delay_ms: int = 0
    decode_microseconds: int = 0
    total_microseconds: int = 0
    attempts: int = 1
    economics: Economics | None = None


class DeadLetter(Struct, frozen=True):
    """A refused entry: its own fields untouched, and why; an oversized body is kept as hash and size only."""

    source: str
    code: str
    detail: str
    attempts: int
    fields: dict[str, str]
    replayable: bool = True

"""Pruned: what a worker publishes, with the ledger of every edit."""

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from contracts.metrics import Economics
from contracts.snapshot import Cut

Status = Literal["pruned", "unchanged", "fallback", "cannot_fit", "superseded", "duplicate"]
Action = Literal["shorten", "mask", "collapse", "drop", "notice", "strip", "rerank", "repair"]
Op = Literal["replace", "drop", "insert"]


class Edit(Struct, frozen=True, omit_defaults=True):
    """One recorded change at a position of the original array; a later edit there overrides an earlier one."""

    stage: str
    action: Action
    op: Op
    position: int
    reason: str
    tokens_before: int
    tokens_after: int
    item: Raw | UnsetType = UNSET
    sha256: str = ""
    tool: str = ""


class Tokens(Struct, frozen=True, omit_defaults=True):
    """Size before and after, by the named method; calibrated counts carry the plain estimate beside them."""

    before: int
    after: int
    method: str
    estimate_before: int | None = None


class Counts(Struct, frozen=True):
    """What the summary line says: turns removed, context chunks kept and dropped."""

    turns_removed: int = 0
    rag_kept: int = 0
    rag_dropped: int = 0


class PolicyRef(Struct, frozen=True):
    """Which policy made a result: its name and the hash of its full text."""

    name: str
    hash: str


class Pruned(Struct, frozen=True):
    """The one result of a snapshot."""

    snapshot_id: str
    conversation_id: str
    sequence: int | None
    workload: str
    format: str
    policy: PolicyRef
    status: Status
    reason: list[str]
    edits: list[Edit]
    cuts: list[Cut]
    first_changed_index: int | None
    tokens: Tokens
    counts: Counts
    summary: str
    messages: list[Raw] | UnsetType = UNSET
    economics: Economics | UnsetType = UNSET  # of `steady` only
    metadata: Raw | UnsetType = UNSET

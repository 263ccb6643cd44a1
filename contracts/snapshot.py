"""Snapshot: what an agent runner publishes before a model call."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

VERSION = 1
MAX_SEQUENCE = 10**15 - 1  # Lua numbers are doubles; this still compares exactly

Count = Annotated[int, Meta(ge=0)]
Sequence = Annotated[int, Meta(ge=0, le=MAX_SEQUENCE)]


class Usage(Struct, frozen=True):
    """What the provider reported for the previous request, and which items that request held."""

    input_tokens: Count
    messages: Count
    pruned: bool = False


class Cache(Struct, frozen=True):
    """How warm the provider's prompt cache is."""

    age_s: Annotated[float, Meta(ge=0)]
    ttl_s: Annotated[float, Meta(gt=0)] = 300.0


class Cut(Struct, frozen=True, omit_defaults=True):
    """A point where `steady` pruned, and how far it went; echoed back, it makes that decision sticky.

    The places are numbers of messages of the array, as ``at`` is. A cut that names only ``at`` is made anew there.
    """

    at: Count
    reason: str = ""
    tokens_before: Count = 0
    tokens_after: Count = 0
    freed: Count = 0  # dropped up to here, for a provider's compaction item stands behind
    cleared: Count = 0  # stale results cleared up to here
    condensed: Count = 0  # results condensed up to here
    dropped: Count = 0  # rounds dropped up to here
    notice: Count = 0  # tokens that the notice might take
    share: Annotated[float, Meta(ge=0, le=1)] = 0.0  # of a result that stayed as evidence
    anchor: str = ""  # of the messages seen: a cut of another array is not honoured


class Snapshot(Struct, frozen=True):
    """One conversation at one moment; only ``conversation_id`` and ``messages`` are required."""

    conversation_id: str
    messages: list[Raw]
    snapshot_id: str = ""
    sequence: Sequence | None = None
    version: int = VERSION
    workload: str = "default"
    format: str = "auto"
    system: Raw | UnsetType = UNSET
    tools: Raw | UnsetType = UNSET
    previous_response_id: str = ""
    policy: str | dict[str, Any] = ""
    usage: Usage | None = None
    cache: Cache | None = None
    cuts: list[Cut] = []
    inbox: str = ""
    reply: Literal["array", "patch"] = "array"
    taken_at: Count = 0
    metadata: Raw | UnsetType = UNSET

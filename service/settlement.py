"""Settlement: an entry, what is to become of it, and what the server said; nothing here talks to a server."""

from enum import StrEnum

from msgspec import Struct

from contracts import Code, Counts, Metrics


class Entry(Struct, frozen=True):
    """One stream entry as it was read; ``attempts`` counts isolated runs, 0 for an entry that is no suspect."""

    stream: str
    id: str
    fields: list[bytes]
    attempts: int = 0


class Refusal(Struct, frozen=True):
    """Why an entry becomes a dead letter; an oversized body is kept as hash and size only."""

    code: Code
    detail: str
    sha256: str = ""
    size: int = 0


class Settlement(Struct, frozen=True, kw_only=True):
    """Everything the settle script may have to write for one entry; ``short`` forms lack outcome and opening brace.

    Without result and refusal it stands for an entry that was passed over for a newer one.
    """

    entry: Entry
    snapshot_id: str
    is_resendable: bool
    fingerprint: str = ""
    conversation_id: str
    metrics: Metrics
    row: bytes
    short_row: bytes
    sequence: int | None = None
    inbox: str = ""
    result: bytes = b""
    short_result: bytes = b""
    counts: Counts = Counts()
    refusal: Refusal | None = None


class Verdict(StrEnum):
    """What became of an entry; the script's own words, and KEPT when the server refused to settle it.

    OTHER_ARRAY: a duplicate by its id, but its messages differ from those that were settled under it.
    NEEDED: it was passed over for a newer one that came to nothing, so it has to be pruned after all.
    """

    OK = "OK"
    SUPERSEDED = "SUPERSEDED"
    DUPLICATE = "DUPLICATE"
    OTHER_ARRAY = "OTHER_ARRAY"
    DEAD = "DEAD"
    VANISHED = "VANISHED"
    SETTLED = "SETTLED"
    NEEDED = "NEEDED"
    KEPT = "KEPT"

"""Dead letters: what was refused and why, without its content unless asked for, and the way back into the stream."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from contracts import DeadLetter, Refused
from service.keys import BODY_FIELD, ENCODING_FIELD, Keys
from service.packing import unpack
from service.script import Script

if TYPE_CHECKING:
    from redis import Redis

PAGE_ENTRIES: Final = 100
SHOWN_BYTES: Final = 512  # of a code, a detail, an id
SHOWN_BODY_BYTES: Final = 2**26
OURS: Final = frozenset(
    f"_{name}"
    for name in (
        "code",
        "detail",
        "attempts",
        "source",
        "snapshot_id",
        "sha256",
        "size",
        "replayable",
        "replays",
    )
)
ENTRY_ID: Final = re.compile(r"\d{1,20}-\d{1,20}")


class Letter(Struct, frozen=True):
    """What may be known of a dead letter without reading it."""

    id: str
    snapshot_id: str
    code: str
    detail: str
    attempts: int
    replays: int
    body_bytes: int
    is_replayable: bool
    source: str

    @property
    def buried_ms(self) -> int:
        """When it became a dead letter."""
        return int(self.id.partition("-")[0])


class Search(Struct, frozen=True):
    """Which letters are meant: any of ``codes`` (none: all), and when they were buried."""

    codes: frozenset[str] = frozenset()
    first_id: str = "-"
    last_id: str = "+"


class Outcome(Struct, frozen=True):
    """What became of one replay: REPLAYED, GONE, KEPT or FULL, and the new entry or the reason."""

    verdict: str
    detail: str


class DeadLetters:
    """The dead letters of one lane."""

    def __init__(self, client: "Redis", keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._page = Script("page")
        self._replay = Script("replay")

    def count(self) -> int:
        """How many there are."""
        return int(self._client.xlen(self._keys.dead))

    def now_ms(self) -> int:
        """The server's time, by which letters are dated."""
        seconds, microseconds = self._client.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    def last_id(self) -> str:
        """The newest letter's id; what is buried later is not part of a run that began before."""
        newest: Any = self._client.xrevrange(self._keys.dead, count=1)
        return newest[0][0].decode() if newest else "0-0"

    def find(self, search: Search) -> Iterator[Letter]:
        """The letters that are meant, oldest first; no content leaves the server."""
        start = search.first_id
        while True:
            page = self._read_page(start, search.last_id)
            for entry_id, size, fields in page:
                letter = _letter(entry_id, size, fields)
                if not search.codes or letter.code in search.codes:
                    yield letter
            if len(page) < PAGE_ENTRIES:
                return
            start = "(" + page[-1][0].decode()

    def read(self, letter_id: str) -> DeadLetter | None:
        """One letter with its content; bytes that are no text are shown escaped."""
        found: Any = self._client.xrange(self._keys.dead, letter_id, letter_id)
        if not found:
            return None
        fields = found[0][1]
        about = {_text(name): _text(value) for name, value in fields.items() if _text(name) in OURS}
        return DeadLetter(
            source=about.get("_source", ""),
            code=about.get("_code", ""),
            detail=about.get("_detail", ""),
            attempts=_number(about.get("_attempts", "")),
            fields={_text(name): _text(value) for name, value in _readable(fields) if _text(name) not in OURS},
            replayable=about.get("_replayable") != "no",
        )

    def replay(self, letter_id: str, *, operator: str, most_replays: int, most_entries: int) -> Outcome:
        """Send a letter back to its stream, at most once whoever else tries."""
        keys = [self._keys.dead, self._keys.ops, *self._keys.inputs]
        reply = self._replay.call_blocking(self._client, keys, [letter_id, operator, most_replays, most_entries])
        verdict, detail = (part.decode() for part in reply)
        return Outcome(verdict, detail)

    def _read_page(self, start: str, end: str) -> list[Any]:
        arguments = [start, end, PAGE_ENTRIES, 0, SHOWN_BYTES]
        page: list[Any] = self._page.call_blocking(self._client, [self._keys.dead], arguments)
        return page


def _letter(entry_id: bytes, size: int, flat: list[bytes]) -> Letter:
    fields = {_text(name): _text(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}
    return Letter(
        id=entry_id.decode(),
        snapshot_id=fields.get("_snapshot_id", ""),
        code=fields.get("_code", ""),
        detail=fields.get("_detail", ""),
        attempts=_number(fields.get("_attempts", "")),
        replays=_number(fields.get("_replays", "")),
        body_bytes=size or _number(fields.get("_size", "")),
        is_replayable=fields.get("_replayable") != "no",
        source=fields.get("_source", ""),
    )


def _readable(fields: dict[bytes, bytes]) -> Iterator[tuple[bytes, bytes]]:
    for name, value in fields.items():
        if name == BODY_FIELD and ENCODING_FIELD in fields:
            try:
                yield name, unpack(value, fields[ENCODING_FIELD], SHOWN_BODY_BYTES)
                continue
            except Refused:
                pass  # shown as it is: that it cannot be unpacked may be why it is here
        yield name, value


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0

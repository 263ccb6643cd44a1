"""Audit: reconcile every snapshot of a lane to exactly one outcome, and name what is lost or doubled.

Everything is read in pages, bodies stay on the server, and traffic may go on meanwhile: each step reads what an earlier
one says must be there by now.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from service.keys import BODY_FIELD, GROUP, SNAPSHOT_FIELD, Keys
from service.script import Script

if TYPE_CHECKING:
    from redis import Redis

PAGE_ENTRIES: Final = 1_000
PAGE_BYTES: Final = 4 * 2**20  # of bodies that the server looks at for one page
ROW_BYTES: Final = 64 * 2**10
HEAD_BYTES: Final = 2_048  # of a result: enough for the longest id, escaped
VALUE_BYTES: Final = 1_024
NAMED: Final = 100  # findings that are named; the rest is counted
DUPLICATE: Final = b'{"status":"duplicate"'
FINAL: Final = frozenset({"pruned", "unchanged", "fallback", "cannot_fit", "superseded"})
SNAPSHOT_ID: Final = re.compile(rb'"snapshot_id":("(?:[^"\\]|\\.)*")')

Tell = Callable[[int], None]


class Finding(Struct, frozen=True):
    """One thing that is wrong: what, and with which snapshot or entry."""

    what: str
    id: str


class Report(Struct, frozen=True):
    """What an audit found; the lane is sound when nothing is lost, nothing doubled and the balance is 0."""

    lane: str
    added: int
    unread: int
    pending: int
    settled: int
    balance: int
    outcomes: dict[str, int]
    lost: int
    doubled: int
    findings: list[Finding]
    notes: list[str]

    @property
    def is_sound(self) -> bool:
        """Whether every snapshot has one outcome or is still on its way to it."""
        return not (self.lost or self.doubled or self.balance)


class Row(Struct, frozen=True):
    """What the audit needs of a metrics row."""

    entry_id: str
    snapshot_id: str
    status: str
    inbox: str = ""


class Census(Struct, frozen=True):
    """Length, entries ever added and entries pending of one stream."""

    length: int
    added: int
    pending: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing was ever trimmed or deleted."""
        return self.length == self.added


class Ledger:
    """What the metrics rows say, snapshot by snapshot."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.entries: set[str] = set()
        self.results: Counter[str] = Counter()
        self.published: Counter[str] = Counter()
        self.refused: dict[str, str] = {}
        self.vanished: dict[str, str] = {}
        self.repeated: list[str] = []
        self.first_row_ms = 0
        self._pairs: set[tuple[str, str]] = set()

    def add(self, row: Row) -> None:
        """Enter one row."""
        self.outcomes[row.status] += 1
        self.entries.add(row.entry_id)
        # Live and batch ids can be equal, so an entry counts as settled twice only under the same snapshot.
        pair = (row.entry_id, row.snapshot_id)
        if pair in self._pairs:
            self.repeated.append(row.snapshot_id)
        self._pairs.add(pair)
        if row.status in FINAL:
            self.results[row.snapshot_id] += 1
            self.published[row.snapshot_id] += not row.inbox  # what goes to an inbox is its owner's to delete
        elif row.status == "refused":
            self.refused[row.entry_id] = row.snapshot_id
        elif row.status == "vanished":
            self.vanished[row.entry_id] = row.snapshot_id


_row = msgspec.json.Decoder(Row)
_text = msgspec.json.Decoder(str)


class Auditor:
    """Reads a lane from one end to the other, and tells how many entries it has looked at."""

    def __init__(self, client: "Redis", keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._tell: Tell = _nobody
        self._looked_at = 0
        self._page = Script("page")
        self._census = Script("census")

    def count(self) -> int:
        """About how many entries there are to look at."""
        return sum(one.length for one in self.census().values())

    def census(self) -> dict[str, Census]:
        """The lane's streams at one moment."""
        names = ("snapshots", "batch", "pruned", "metrics", "dead", "ops")
        streams = [getattr(self._keys, name) for name in names]
        counts = self._census.call_blocking(self._client, streams, [GROUP])
        return {name: Census(*count) for name, count in zip(names, counts, strict=True)}

    def run(self, tell: Tell | None = None) -> Report:
        """Read everything and reconcile it."""
        self._tell = tell or _nobody
        # The order matters: an admitted snapshot that is in no input any more has a row by the time rows are read,
        # and a row that was read has its result or its letter by the time those are.
        admitted = self._admitted()
        waiting = {entry_id for stream in self._keys.inputs for entry_id, _ in self._entries(stream, 0)}
        ledger = self._ledger()
        letters = self._letters()
        found, copies = self._results()
        census = self.census()
        lost, doubled, notes = _Findings(), _Findings(), list[str]()
        inputs = (census["snapshots"], census["batch"])
        balance = sum(one.added - one.length for one in inputs) - census["metrics"].added
        self._find_unaccounted(lost, notes, balance, admitted, waiting, ledger, census["metrics"])
        for entry_id, snapshot_id in ledger.vanished.items():
            name = snapshot_id or admitted.get(entry_id, f"entry {entry_id}")
            lost.add("deleted by somebody else before it was pruned", name)
        for entry_id, snapshot_id in ledger.refused.items():
            if entry_id not in letters:
                lost.add("refused, and its dead letter is gone without a replay", snapshot_id)
        self._find_missing_results(lost, notes, ledger, found, census)
        for snapshot_id in ledger.repeated:
            doubled.add("one entry settled twice", snapshot_id)
        for snapshot_id, times in (ledger.results | copies).items():
            if times > 1:
                doubled.add(f"{times} results", snapshot_id)
        return Report(
            lane=self._keys.lane,
            added=sum(one.added for one in inputs),
            unread=sum(one.length - one.pending for one in inputs),
            pending=sum(one.pending for one in inputs),
            settled=census["metrics"].added,
            balance=balance,
            outcomes=dict(ledger.outcomes.most_common()),
            lost=lost.count,
            doubled=doubled.count,
            findings=lost.named + doubled.named,
            notes=notes,
        )

    def _find_unaccounted(
        self,
        lost: "_Findings",
        notes: list[str],
        balance: int,
        admitted: dict[str, str],
        waiting: set[str],
        ledger: Ledger,
        metrics: Census,
    ) -> None:
        """Entries that went without a row: the balance counts them, the admissions name those they know of."""
        named = [
            name
            for entry_id, name in admitted.items()
            if entry_id not in waiting and entry_id not in ledger.entries and _ms(entry_id) >= ledger.first_row_ms
        ]
        for name in named:
            lost.add("admitted, then neither in a stream nor settled", name)
        lost.count += max(0, balance - len(named))
        if balance > len(named):
            notes.append(f"{balance - len(named)} entries went without a trace: trimmed or deleted by somebody else")
        if balance < 0:
            notes.append("more rows than entries that went: an input stream was deleted or the server restored")
        if not metrics.is_whole:
            notes.append(f"{metrics.added - metrics.length} older metrics rows are trimmed and were not looked at")

    def _find_missing_results(
        self, lost: "_Findings", notes: list[str], ledger: Ledger, found: set[str], census: dict[str, Census]
    ) -> None:
        if census["pruned"].is_whole:
            for snapshot_id in sorted((+ledger.published).keys() - found):
                lost.add("settled, and its result is gone", snapshot_id)
        elif census["metrics"].is_whole:
            # Results were trimmed or taken away by their readers; all of them must at least have been there.
            missing = max(0, ledger.published.total() - census["pruned"].added)
            lost.count += missing
            if missing:
                notes.append(f"{missing} results were never published, or the stream was deleted")

    def _admitted(self) -> dict[str, str]:
        """The entries that admission promised something for, with the ids they were admitted under."""
        prefix = self._keys.admitted("")
        prefix = prefix[: prefix.rindex(":") + 1]
        found: dict[str, str] = {}
        batch: list[Any] = []
        for key in self._client.scan_iter(prefix + "*", count=PAGE_ENTRIES):
            batch.append(key)
            if len(batch) == PAGE_ENTRIES:
                found |= self._resolve(batch, len(prefix))
                batch = []
        return found | self._resolve(batch, len(prefix))

    def _resolve(self, keys: list[Any], prefix_length: int) -> dict[str, str]:
        if not keys:
            return {}
        values: Any = self._client.mget(keys)
        pairs = zip(keys, values, strict=True)
        return {value.decode().partition(" ")[0]: key.decode()[prefix_length:] for key, value in pairs if value}

    def _ledger(self) -> Ledger:
        ledger = Ledger()
        for entry_id, fields in self._entries(self._keys.metrics, ROW_BYTES):
            ledger.first_row_ms = ledger.first_row_ms or _ms(entry_id)
            try:
                ledger.add(_row.decode(fields.get(BODY_FIELD, b"")))
            except msgspec.DecodeError:
                ledger.outcomes["unreadable"] += 1
        if self.census()["metrics"].is_whole:
            ledger.first_row_ms = 0
        return ledger

    def _letters(self) -> set[str]:
        """The entries whose dead letters are there, or were replayed."""
        sources = [fields.get(b"_source", b"") for _, fields in self._entries(self._keys.dead, 0)]
        sources += [fields.get(b"source", b"") for _, fields in self._entries(self._keys.ops, 0)]
        return {source.decode(errors="replace").rpartition(" ")[2] for source in sources}

    def _results(self) -> tuple[set[str], Counter[str]]:
        """The snapshots that have a result somewhere, and how many each has that is not just a note on a resend."""
        found: set[str] = set()
        copies: Counter[str] = Counter()
        inboxes = [key.decode() for key in self._client.scan_iter(self._keys.results("*"), count=PAGE_ENTRIES)]
        for stream in (self._keys.pruned, *inboxes):
            for _, fields in self._entries(stream, HEAD_BYTES):
                head = fields.get(BODY_FIELD, b"")
                snapshot_id = _snapshot_id(fields, head)
                found.add(snapshot_id)
                if not head.startswith(DUPLICATE):
                    copies[snapshot_id] += 1
        return found, copies

    def _entries(self, stream: str, body_bytes: int) -> Iterator[tuple[str, dict[bytes, bytes]]]:
        start, count = "-", 10
        while True:
            arguments = [start, "+", count, body_bytes, VALUE_BYTES]
            page = self._page.call_blocking(self._client, [stream], arguments)
            for entry_id, _, flat in page:
                yield entry_id.decode(), dict(zip(flat[::2], flat[1::2], strict=True))
            self._looked_at += len(page)
            self._tell(self._looked_at)
            if len(page) < count:
                return
            start = "(" + page[-1][0].decode()
            bytes_each = max(1, sum(size for _, size, _ in page) // len(page))
            count = max(1, min(count * 2, PAGE_ENTRIES, PAGE_BYTES // bytes_each))


class _Findings:
    """A count, and the first of what was counted by name."""

    def __init__(self) -> None:
        self.count = 0
        self.named: list[Finding] = []

    def add(self, what: str, name: str) -> None:
        self.count += 1
        if len(self.named) < NAMED:
            self.named.append(Finding(what, name))


def _nobody(_: int) -> None:
    """Nobody wants to know."""


def _snapshot_id(fields: dict[bytes, bytes], head: bytes) -> str:
    if SNAPSHOT_FIELD in fields:
        return fields[SNAPSHOT_FIELD].decode(errors="replace")
    match = SNAPSHOT_ID.search(head)
    return _text.decode(match[1]) if match else ""


def _ms(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])

"""The check: every admitted snapshot has exactly one outcome, the right one, and no conversation goes back in time."""

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from redis import Redis

from service.keys import GROUP
from tests.faults.traffic import KEYS, POISON_FATES

PAGE: Final = 2000
POISON_CODES: Final = frozenset(POISON_FATES.values())
SNAPSHOT_ID: Final = re.compile(rb'"snapshot_id": ?"([^"]+)"')


@dataclass
class Findings:
    """What is wrong; all empty when nothing is."""

    lost: set[str] = field(default_factory=set)
    doubled: set[str] = field(default_factory=set)
    rows_doubled: set[str] = field(default_factory=set)
    innocent_dead: set[str] = field(default_factory=set)
    poison_alive: set[str] = field(default_factory=set)
    wrong_fate: set[str] = field(default_factory=set)
    inverted: set[str] = field(default_factory=set)
    superseded_by_none: set[str] = field(default_factory=set)
    strangers: set[str] = field(default_factory=set)
    unasked_duplicates: int = 0
    left_over: int = 0
    balance: int = 0

    def faults(self) -> dict[str, Any]:
        """Only what is not as it should be, a few examples of each."""
        named = {name: value for name, value in vars(self).items() if value}
        return {name: sorted(value)[:5] if isinstance(value, set) else value for name, value in named.items()}


@dataclass
class Outcomes:
    """What the streams say became of the snapshots; times are the server's, in ms."""

    results: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    letters: list[tuple[int, str, str]] = field(default_factory=list)
    entries: Counter[str] = field(default_factory=Counter)

    def times(self) -> dict[str, list[int]]:
        """When each snapshot got an outcome that is not a recognised duplicate."""
        found: dict[str, list[int]] = defaultdict(list)
        for time, result in self.results:
            if result["status"] != "duplicate":
                found[result["snapshot_id"]].append(time)
        for time, name, _ in self.letters:
            found[name].append(time)
        return found


def read_outcomes(client: Any) -> Outcomes:
    """Everything that was published."""
    outcomes = Outcomes()
    for time, fields in _pages(client, KEYS.pruned):
        result = fields.get(b"__data__") or client.get(fields[b"blob"])
        if result:  # a result whose blob is gone is lost
            outcomes.results.append((time, json.loads(result)))
    for time, fields in _pages(client, KEYS.dead):
        named = SNAPSHOT_ID.search(fields.get(b"__data__", b""))
        outcomes.letters.append((time, named[1].decode() if named else "?", fields[b"_code"].decode()))
    for _, fields in _pages(client, KEYS.metrics):
        outcomes.entries[json.loads(fields[b"__data__"])["entry_id"]] += 1
    return outcomes


def _pages(client: Any, stream: str) -> Any:
    start = "-"
    while rows := client.xrange(stream, min=start, count=PAGE):
        for entry_id, fields in rows:
            yield int(entry_id.partition(b"-")[0]), fields
        start = f"({rows[-1][0].decode()}"


def judge(client: Redis, outcomes: Outcomes, fates: dict[str, str], resends: int) -> Findings:
    """Compare what was admitted with what became of it."""
    times, codes = outcomes.times(), {name: code for _, name, code in outcomes.letters}
    duplicates = sum(result["status"] == "duplicate" for _, result in outcomes.results)
    admitted = fates.keys()
    inverted, superseded_by_none = check_order(outcomes)
    is_poison = {name for name, fate in fates.items() if fate in POISON_CODES}
    return Findings(
        lost=set(admitted - times.keys()),
        doubled={name for name, when in times.items() if len(when) > 1},
        rows_doubled={entry for entry, count in outcomes.entries.items() if count > 1},
        innocent_dead={name for name in codes if fates.get(name) == "result"},
        poison_alive=is_poison - codes.keys(),
        wrong_fate={name for name, code in codes.items() if not is_right(fates.get(name, code), code)},
        inverted=inverted,
        superseded_by_none=superseded_by_none,
        strangers=set(times.keys() - admitted),
        unasked_duplicates=max(0, duplicates - resends),
        left_over=count_left_over(client),
        balance=read_balance(client),
    )


def is_right(fate: str, code: str) -> bool:
    """Whether a dead letter's code fits; of a poison whose attempts all died with their workers, only that is known."""
    return code == fate or fate == "result" or (fate in POISON_CODES and code == "crashed")


def check_order(outcomes: Outcomes) -> tuple[set[str], set[str]]:
    """Snapshots published after a newer one of their conversation, and those called superseded before there was one."""
    newest: dict[str, int] = {}
    inverted, superseded_by_none = set(), set()
    for _, result in outcomes.results:
        name, conversation, sequence = result["snapshot_id"], result["conversation_id"], result["sequence"]
        last = newest.get(conversation, -1)
        if result["status"] == "superseded" and last < sequence:
            superseded_by_none.add(name)
        elif result["status"] not in ("superseded", "duplicate"):
            if sequence <= last:
                inverted.add(name)
            newest[conversation] = max(sequence, last)
    return inverted, superseded_by_none


def count_left_over(client: Any) -> int:
    """Entries unread or pending, and suspects still counted, when all should be settled."""
    pending = sum(client.xpending(stream, GROUP)["pending"] for stream in KEYS.inputs if _has_group(client, stream))
    return int(pending + sum(client.xlen(stream) for stream in KEYS.inputs) + client.hlen(KEYS.attempts))


def _has_group(client: Any, stream: str) -> bool:
    return bool(client.exists(stream) and client.xinfo_groups(stream))


def read_balance(client: Any) -> int:
    """Entries that went without leaving a metrics row: the alarm that an operator sees."""
    *inputs, metrics = [_figures(client, stream) for stream in (*KEYS.inputs, KEYS.metrics)]
    return sum(added - length for added, length in inputs) - metrics[0]


def _figures(client: Any, stream: str) -> tuple[int, int]:
    if not client.exists(stream):
        return 0, 0
    info = client.xinfo_stream(stream)
    return info["entries-added"], info["length"]

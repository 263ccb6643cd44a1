"""The core over stored real conversations: every promise, every preset, and policies far harsher than anyone's."""

import argparse
import multiprocessing
import os
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks.stored import DEFAULT_CORPUS, body_of, corpus_files, read_records
from contracts import Snapshot, decode_snapshot
from tests.pipeline.policies import POLICIES
from tests.pipeline.promises import Breach, Run, broken_rules, check_prune

SEED: Final = 20_261_118
SHORT_BYTES: Final = 8_000_000  # two slow cores need less than two minutes for it
STATUSES: Final = ("pruned", "unchanged", "fallback", "cannot_fit")
EXAMPLES: Final = 3
PROGRESS_EVERY: Final = 100  # a line where there is no terminal to draw a bar on
PLAIN_WIDTH: Final = 150


Work = tuple[str, bytes]  # a record's id and its snapshot


@dataclass
class Tally:
    """What one conversation came to under every policy."""

    record: str
    format: str
    bytes: int
    rules_in: Counter[str] = field(default_factory=Counter)
    rules_out: dict[str, Counter[str]] = field(default_factory=dict)  # by policy
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    breaches: list[tuple[str, Breach]] = field(default_factory=list)


class Kind(NamedTuple):
    """What breaches have in common that are likely to have one cause."""

    format: str
    promise: str
    detail: str


def check_record(work: Work) -> Tally:
    """One conversation under every policy."""
    record, body = work
    snapshot = decode_snapshot(body)
    tally = Tally(record, snapshot.format, len(body))
    for name in POLICIES:
        _check_policy(tally, snapshot, name)
    tally.breaches += [("auto", breach) for breach in _check_auto(snapshot)]
    return tally


def _check_policy(tally: Tally, snapshot: Snapshot, name: str) -> None:
    result, breaches = check_prune(snapshot, POLICIES[name])
    tally.breaches += [(name, breach) for breach in breaches]
    if result is None:
        tally.outcomes[name, "refused"] += 1
        return
    run = Run(snapshot, POLICIES[name], result)
    tally.outcomes[name, result.status] += 1
    tally.rules_in = tally.rules_in or broken_rules(run.before)
    tally.rules_out[name] = broken_rules(run.after)


def _check_auto(snapshot: Snapshot) -> list[Breach]:
    """Whether the format is told from the messages alone, and the promises hold for what was guessed."""
    result, breaches = check_prune(replace(snapshot, format="auto"), POLICIES["window 1"])
    if result is not None and result.format != snapshot.format:
        breaches.append(Breach("auto_finds_the_format", f"took {snapshot.format} for {result.format}"))
    return breaches


def choose(corpus: Path, is_short: bool) -> list[Work]:
    """The conversations to check; in the short form a sample that is the same every time."""
    work = [(record.id, body_of(record)) for record in read_records(corpus_files(corpus))]
    return _sample(work) if is_short else work


def _sample(work: list[Work]) -> list[Work]:
    """The smallest, which are the most and the oddest, and as many bytes again of the others."""
    work = sorted(work, key=lambda item: len(item[1]))
    small = list(_within(work, SHORT_BYTES // 2))
    large = work[len(small) :]
    random.Random(SEED).shuffle(large)
    return small + list(_within(large, SHORT_BYTES // 2))


def _within(work: list[Work], limit_bytes: int) -> Iterator[Work]:
    for record, body in work:
        if len(body) <= limit_bytes:
            limit_bytes -= len(body)
            yield record, body


def check_all(work: list[Work], processes: int, console: Console) -> list[Tally]:
    """Every tally, the largest conversations first so that no core waits for one at the end."""
    work = sorted(work, key=lambda item: -len(item[1]))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    tallies: list[Tally] = []
    with (
        Progress(*columns, *times, console=console, disable=not console.is_terminal) as progress,
        multiprocessing.get_context("spawn").Pool(processes) as pool,
    ):
        task = progress.add_task("conversations", total=len(work))
        for tally in pool.imap_unordered(check_record, work):
            tallies.append(tally)
            progress.advance(task)
            if not console.is_terminal and len(tallies) % PROGRESS_EVERY == 0:
                console.print(f"{len(tallies)} of {len(work)} conversations")
    return sorted(tallies, key=lambda tally: tally.record)


def rules_table(tallies: list[Tally]) -> Table:
    """Violations in and out per format, out under the policy that leaves most."""
    table = Table("format", "n", "MB", "rule", "in", "conversations", "out, worst policy", "policy", title="Violations")
    for name in sorted({tally.format for tally in tallies}):
        mine = [tally for tally in tallies if tally.format == name]
        lead = (name, str(len(mine)), f"{sum(tally.bytes for tally in mine) / 1e6:.1f}")
        for row in _rule_rows(mine) or [("none", "0", "0", "0", "")]:
            table.add_row(*lead, *row)
            lead = ("", "", "")
    return table


def _rule_rows(tallies: list[Tally]) -> list[tuple[str, ...]]:
    before: Counter[str] = sum((tally.rules_in for tally in tallies), Counter())
    after: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for tally in tallies:
        for policy, rules in tally.rules_out.items():
            for rule, count in rules.items():
                after[rule][policy] += count
    return [
        (rule.partition(".")[2], str(before[rule]), str(sum(rule in t.rules_in for t in tallies)), *_worst(after[rule]))
        for rule in sorted(before.keys() | after.keys())
    ]


def _worst(by_policy: Counter[str]) -> tuple[str, str]:
    policy, count = by_policy.most_common(1)[0] if by_policy else ("", 0)
    return str(count), policy


def outcomes_table(tallies: list[Tally]) -> Table:
    """What became of the snapshots under each policy."""
    table = Table("policy", *STATUSES, "refused", title="Outcomes")
    total: Counter[tuple[str, str]] = sum((tally.outcomes for tally in tallies), Counter())
    for name in POLICIES:
        table.add_row(name, *(str(total[name, status]) for status in (*STATUSES, "refused")))
    return table


def by_kind(tallies: list[Tally]) -> dict[Kind, list[tuple[str, str]]]:
    """Every breach as record and policy, grouped by what it breaks."""
    kinds: defaultdict[Kind, list[tuple[str, str]]] = defaultdict(list)
    for tally in tallies:
        for policy, breach in tally.breaches:
            kinds[Kind(tally.format, breach.promise, re.sub(r"\d+", "N", breach.detail))].append((tally.record, policy))
    return kinds


def breach_line(kind: Kind, found: list[tuple[str, str]]) -> str:
    """One kind of breach with its policies and a few records, and no conversation text."""
    policies = ", ".join(dict.fromkeys(policy for _, policy in found))
    records = list(dict.fromkeys(record for record, _ in found))
    more = f" and {len(records) - EXAMPLES} more" if len(records) > EXAMPLES else ""
    where = ", ".join(records[:EXAMPLES]) + more
    return f"BREACH {len(found)}× {kind.format} · {kind.promise}: {kind.detail} · under {policies} · in {where}"


def report(tallies: list[Tally], console: Console) -> int:
    """The tables, one line for each kind of breach, and the exit code."""
    console.print(rules_table(tallies))
    console.print(outcomes_table(tallies))
    kinds = by_kind(tallies)
    for kind, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        console.print(breach_line(kind, found), markup=False, highlight=False, soft_wrap=True)
    breaches = sum(map(len, kinds.values()))
    runs = len(tallies) * (len(POLICIES) + 1)
    console.print(f"{len(tallies)} conversations, {len(POLICIES)} policies, {runs} runs: {breaches} breaches")
    return 1 if breaches else 0


def main() -> int:
    """Check the corpus and say what was broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=DEFAULT_CORPUS)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit", choices=("short", "full"), default=os.environ.get("CORPUS_LIMIT") or "full")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    if not corpus_files(options.corpus):
        console.print(f"no corpus at {options.corpus}: nothing to check")
        return 2
    return report(check_all(choose(options.corpus, options.limit == "short"), options.processes, console), console)


if __name__ == "__main__":
    sys.exit(main())

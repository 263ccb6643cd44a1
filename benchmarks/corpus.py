"""The core over stored real conversations: every promise, every preset, and policies far harsher than anyone's."""

import argparse
import multiprocessing
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contracts import Pruned, Snapshot, decode_snapshot
from pipeline import DIALECTS
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks.stored import DEFAULT_CORPUS, WIRE_FORMATS, body_of, corpus_files, read_records
from tests.pipeline.policies import HARSH_POLICIES, PRESET_POLICIES
from tests.pipeline.promises import Breach, Run, broken_rules, check_prune

POLICIES: Final = PRESET_POLICIES | HARSH_POLICIES
SEED: Final = 20_261_118
SHORT_BYTES: Final = 9_000_000  # about a minute on two busy cores
SHOWN_BREACHES: Final = 40


@dataclass
class Tally:
    """What one conversation came to under every policy."""

    record: str
    format: str
    bytes: int
    rules_in: Counter[str] = field(default_factory=Counter)
    rules_out: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    breaches: list[tuple[str, Breach]] = field(default_factory=list)


def check_record(work: tuple[str, bytes]) -> Tally:
    """One conversation under every policy."""
    record, body = work
    snapshot = decode_snapshot(body)
    tally = Tally(record, snapshot.format, len(body))
    for name, policy in POLICIES.items():
        result, breaches = check_prune(snapshot, policy)
        tally.breaches += [(name, breach) for breach in breaches]
        if result is not None:
            tally.outcomes[name, result.status] += 1
            _count_rules(tally, Run(snapshot, policy, result))
    tally.breaches += [("auto", breach) for breach in _check_auto(snapshot)]
    return tally


def _count_rules(tally: Tally, run: Run) -> None:
    tally.rules_in = broken_rules(run.before)
    tally.rules_out |= broken_rules(run.after)


def _check_auto(snapshot: Snapshot) -> list[Breach]:
    """Whether the format is told from the messages alone; where two fit, either one's rules must hold."""
    from msgspec.structs import replace

    result, breaches = check_prune(replace(snapshot, format="auto"), POLICIES["window 1"])
    if isinstance(result, Pruned) and result.format != snapshot.format:
        breaches.append(Breach("auto_finds_the_format", f"took {snapshot.format} for {result.format}"))
    return breaches


def choose(corpus: Path, limit_bytes: int | None) -> list[tuple[str, bytes]]:
    """The conversations to check; with a limit, a sample that is the same every time."""
    known = {dialect.name for dialect in DIALECTS}
    files = corpus_files(corpus)
    records = [(r.id, body_of(r)) for r in read_records(files) if WIRE_FORMATS[r.format] in known]
    random.Random(SEED).shuffle(records)
    return records if limit_bytes is None else list(_within(records, limit_bytes))


def _within(records: list[tuple[str, bytes]], limit_bytes: int) -> Iterator[tuple[str, bytes]]:
    for record in records:
        if len(record[1]) > limit_bytes:
            continue
        limit_bytes -= len(record[1])
        yield record


def run(work: list[tuple[str, bytes]], processes: int, console: Console) -> list[Tally]:
    """Every tally, the largest conversations first so that no core waits for one at the end."""
    work = sorted(work, key=lambda item: -len(item[1]))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("conversations", total=len(work))
        tallies = []
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            for tally in pool.imap_unordered(check_record, work, chunksize=1 if len(work) < 100 else 4):
                tallies.append(tally)
                progress.advance(task)
    return sorted(tallies, key=lambda tally: tally.record)


def show(tallies: list[Tally], console: Console) -> None:
    """Violations in and out per rule, and what became of the snapshots per policy."""
    console.print(_sizes(tallies))
    console.print(_rules(tallies))
    console.print(_outcomes(tallies))


def _sizes(tallies: list[Tally]) -> Table:
    table = Table("format", "conversations", "MB", title="Checked")
    for name in sorted({tally.format for tally in tallies}):
        mine = [tally for tally in tallies if tally.format == name]
        table.add_row(name, str(len(mine)), f"{sum(tally.bytes for tally in mine) / 1e6:.1f}")
    return table


def _rules(tallies: list[Tally]) -> Table:
    table = Table("rule", "in", "out, worst policy", title="Rules broken, in the arrays that came and that left")
    before: Counter[str] = sum((tally.rules_in for tally in tallies), Counter())
    after: Counter[str] = sum((tally.rules_out for tally in tallies), Counter())
    for rule in sorted(before | after):
        table.add_row(rule, str(before[rule]), str(after[rule]))
    return table


def _outcomes(tallies: list[Tally]) -> Table:
    statuses = ("pruned", "unchanged", "fallback", "cannot_fit")
    table = Table("policy", *statuses, title="Outcomes")
    total: Counter[tuple[str, str]] = sum((tally.outcomes for tally in tallies), Counter())
    for name in POLICIES:
        table.add_row(name, *(str(total[name, status]) for status in statuses))
    return table


def report(tallies: list[Tally], console: Console) -> int:
    """Every breach by record, policy and promise; the exit code."""
    breaches = [(tally.record, name, breach) for tally in tallies for name, breach in tally.breaches]
    for record, name, breach in breaches[:SHOWN_BREACHES]:
        console.print(f"BREACH {record} · {name} · {breach.promise}: {breach.detail}", markup=False, soft_wrap=True)
    runs = len(tallies) * len(POLICIES)
    console.print(f"{len(tallies)} conversations, {len(POLICIES)} policies, {runs} runs: {len(breaches)} breaches")
    return 1 if breaches else 0


def main() -> int:
    """Check the corpus and say what was broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=DEFAULT_CORPUS)
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args()
    console = Console()
    if not corpus_files(options.corpus):
        console.print(f"no corpus at {options.corpus}: nothing to check")
        return 2
    limit_bytes = SHORT_BYTES if os.environ.get("SECATEUR_CORPUS") == "short" else None
    tallies = run(choose(options.corpus, limit_bytes), options.processes, console)
    show(tallies, console)
    return report(tallies, console)


if __name__ == "__main__":
    sys.exit(main())

"""Replay: stored trajectories call by call under every policy: the cost of the input, its size, what it still holds."""

import argparse
import hashlib
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import asdict, replace
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks.plot import draw
from benchmarks.stored import DEFAULT_CORPUS, WIRE_FORMATS, Record, body_of, corpus_files, read_records
from contracts import Cut, Policy, Snapshot, decode_snapshot, load_policy
from pipeline import prune
from pipeline.conversation import read_conversation
from pipeline.tokens import counter
from pipeline.view import Message

READ: Final = 0.1
WRITE: Final = 1.25
OVERSIZE: Final = 1.5  # a conversation is replayed when it exceeds the budget so many times
BUDGETS: Final = (20_000, 40_000, 60_000)
GROUPS: Final = {
    "anthropic": "anthropic and chat",
    "openai-chat": "anthropic and chat",
    "openai-responses": "responses",
}
PLOTTED: Final = "anthropic and chat"
PLAIN_WIDTH: Final = 120
DOCS: Final = Path(__file__).parent.parent / "docs"
RESULTS: Final = Path(__file__).parent / "replay.json"
PEERS: Final = Path(__file__).parent / "peers.json"

# What a later step is likely to refer to; the pruner has a notion of its own (pipeline/steady/evidence.py).
_IDENTIFIER: Final = re.compile(
    r"""
    (?:[\w.@~-]*/)+[\w.@-]*\w          # paths
    | \b\w+(?:\.\w+)+\b                # dotted names, file names
    | \b[A-Za-z]\w*_\w+\b | \b_\w{3,}  # snake_case
    | \b[a-z]+[A-Z]\w+ | \b[A-Z][a-z0-9]+[A-Z]\w+   # camelCase
    | \b(?=[0-9a-f-]*\d)[0-9a-f]{7,}\b # hashes
    | \b\d{3,}\b                       # numbers
    """,
    re.VERBOSE,
)


class Request(Struct, frozen=True):
    """One call of the model: what it was asked with, and what is known of how it was made."""

    items: list[Raw]
    status: str = ""
    cuts: list[Cut] = []


Pruner = Callable[[Snapshot, list[Cut]], Request]


class Tally(Struct):
    """What a policy came to, over calls that were replayed."""

    conversations: int = 0
    calls: int = 0
    cost: float = 0.0
    tokens: int = 0
    largest: int = 0
    over: int = 0
    cannot_fit: int = 0
    changed: int = 0
    wanted: int = 0
    found: int = 0
    referring: int = 0  # calls that name anything of the history
    shares: float = 0.0  # of what they name, summed over those calls

    def add(self, other: "Tally") -> None:
        """Count another's calls in."""
        for name, value in asdict(other).items():
            mine = getattr(self, name)
            setattr(self, name, max(mine, value) if name == "largest" else mine + value)


class Job(Struct, frozen=True):
    """One conversation under one budget."""

    record: str
    body: bytes
    group: str
    budget: int


def prune_with(policy: Policy) -> Pruner:
    """A policy of ours, its cuts echoed from call to call."""

    def run(snapshot: Snapshot, cuts: list[Cut]) -> Request:
        result = prune(replace(snapshot, cuts=cuts), policy)
        assert isinstance(result.messages, list)
        return Request(result.messages, result.status, result.cuts)

    return run


def leave_alone(snapshot: Snapshot, cuts: list[Cut]) -> Request:
    """No pruning: what everything is measured against."""
    return Request(snapshot.messages)


def pruners(budget: int) -> dict[str, Pruner]:
    """Every policy by name; those with a budget of their own get the one that is asked for."""
    policies: dict[str, Any] = {
        "beskar": "beskar",
        "xzatoma": {"preset": "xzatoma", "prune": {"max_tokens": budget}},
        "tessera": "tessera",
        "opencode": "opencode",
        "steady": {"preset": "steady", "budget": {"max_tokens": budget}},
    }
    return {"none": leave_alone} | {name: prune_with(load_policy(source)) for name, source in policies.items()}


class Reader:
    """Messages of one conversation, each read and counted once however many requests hold it."""

    def __init__(self, format_name: str) -> None:
        self._format = format_name
        self._known: dict[bytes, tuple[int, frozenset[str]]] = {}

    def look(self, item: Raw) -> tuple[int, frozenset[str]]:
        """The size of an item and the identifiers in it."""
        key = bytes(item)
        if key not in self._known:
            message = read_conversation([item], self._format, counter("estimate")).messages[0]
            self._known[key] = message.tokens, identifiers([message])
        return self._known[key]


def identifiers(messages: Iterable[Message]) -> frozenset[str]:
    """The identifiers that messages show to the model or that it wrote, its private reasoning aside."""
    texts = (
        text for message in messages for part in message.parts if part.kind != "reasoning" for _, text in part.slots
    )
    return frozenset(name for text in texts for name in _IDENTIFIER.findall(text.replace("\\n", "\n")))


def calls_of(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Where each call's answer begins and ends; one answer may be several items."""
    start = 0
    for is_answer, run in groupby(messages, key=lambda message: message.role == "assistant"):
        end = start + sum(1 for _ in run)
        if is_answer:
            yield start, end
        start = end


def replay(snapshot: Snapshot, pruner: Pruner, budget: int, fixed: int) -> Tally:
    """One conversation call by call under one policy."""
    messages = read_conversation(snapshot.messages, snapshot.format, counter("estimate")).messages
    reader = Reader(snapshot.format)
    tally = Tally(conversations=1)
    history: set[str] = set()
    last: list[bytes] = []
    cuts: list[Cut] = []
    seen = 0
    for start, end in calls_of(messages):
        if not start:
            continue
        request = pruner(replace(snapshot, messages=snapshot.messages[:start]), cuts)
        cuts = request.cuts
        history.update(*(reader.look(item)[1] for item in snapshot.messages[seen:start]))
        seen = start
        wanted = identifiers(messages[start:end]) & history
        last = _count(tally, request, last, wanted, reader, budget, fixed)
    return tally


def _count(
    tally: Tally, request: Request, last: list[bytes], wanted: Iterable[str], reader: Reader, budget: int, fixed: int
) -> list[bytes]:
    items = [bytes(item) for item in request.items]
    looks = [reader.look(item) for item in request.items]
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(items, last, strict=False)))
    total = fixed + sum(tokens for tokens, _ in looks)
    cached = (fixed if last else 0) + sum(tokens for tokens, _ in looks[:same])
    wanted = list(wanted)
    tally.calls += 1
    tally.cost += READ * cached + WRITE * (total - cached)
    tally.tokens += total
    tally.largest = max(tally.largest, total)
    tally.over += total > budget
    tally.cannot_fit += total > budget and request.status == "cannot_fit"
    tally.changed += same < len(last)
    found = sum(any(name in names for _, names in looks) for name in wanted)
    tally.wanted += len(wanted)
    tally.found += found
    if wanted:
        tally.referring += 1
        tally.shares += found / len(wanted)
    return items


def run_job(job: Job) -> tuple[Job, dict[str, Tally]]:
    """One conversation under every policy."""
    snapshot = decode_snapshot(job.body)
    count = counter("estimate")
    fixed = sum(count(bytes(raw).decode()) for raw in (snapshot.system, snapshot.tools) if raw is not UNSET)
    tallies = {name: replay(snapshot, pruner, job.budget, fixed) for name, pruner in PRUNERS(job.budget).items()}
    return replace(job, body=b""), tallies


PRUNERS: Callable[[int], dict[str, Pruner]] = pruners  # another table for peers, in their own environment


def half_of(record: Record) -> str:
    """Which half a conversation is in: by where it was stored, so that all shapes of a session are in one."""
    origin = "|".join(str(record.origin.get(key, "")) for key in ("repo", "path")) if record.origin else record.id
    return ("tune", "report")[hashlib.sha256(origin.encode()).digest()[0] % 2]


def choose(corpus: Path, budgets: Sequence[int], half: str, limit: int = 0) -> list[Job]:
    """The conversations to replay: of the half, over the budget, the same sample every time."""
    jobs: dict[tuple[str, int], list[Job]] = {}
    plain = load_policy({"validate": {"input": "trust"}})
    for record in read_records(corpus_files(corpus)):
        group = GROUPS.get(WIRE_FORMATS[record.format])
        if group is None or (half != "all" and half_of(record) != half):
            continue
        body = body_of(record)
        size = prune(decode_snapshot(body), plain).tokens.before
        for budget in budgets:
            if size > OVERSIZE * budget:
                jobs.setdefault((group, budget), []).append(Job(record.id, body, group, budget))
    for some in jobs.values():
        some.sort(key=lambda job: hashlib.sha256(job.record.encode() + job.body[:200]).digest())
    return [job for some in jobs.values() for job in some[: limit or None]]


Work = Callable[[Job], tuple[Job, dict[str, Tally]]]
Results = dict[tuple[str, int], dict[str, Tally]]


def run(jobs: list[Job], processes: int, console: Console, work: Work = run_job) -> Results:
    """Every tally by group, budget and policy; the largest conversations first so that no core waits at the end."""
    jobs = sorted(jobs, key=lambda job: -len(job.body))
    results: Results = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("conversations", total=len(jobs))
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            for job, tallies in pool.imap_unordered(work, jobs):
                for name, tally in tallies.items():
                    results.setdefault((job.group, job.budget), {}).setdefault(name, Tally()).add(tally)
                progress.advance(task)
    return results


def figures(tally: Tally, none: Tally) -> dict[str, float]:
    """What is printed of a tally, as shares and means."""
    calls = max(tally.calls, 1)
    return {
        "cost": round(tally.cost / none.cost, 3) if none.cost else 1.0,
        "mean_tokens": round(tally.tokens / calls),
        "max_tokens": tally.largest,
        "over_budget": round(tally.over / calls, 4),
        "cannot_fit": round(tally.cannot_fit / calls, 4),
        "recall": round(tally.shares / tally.referring, 4) if tally.referring else 1.0,
        "recall_pooled": round(tally.found / tally.wanted, 4) if tally.wanted else 1.0,
        "prefix_changed": round(tally.changed / calls, 4),
        "conversations": tally.conversations,
        "calls": tally.calls,
        "referring_calls": tally.referring,
        "identifiers": tally.wanted,
    }


def report(results: Results, half: str) -> list[dict[str, Any]]:
    """The results as rows."""
    return [
        {"group": group, "budget": budget, "half": half, "policy": name} | figures(tally, tallies["none"])
        for (group, budget), tallies in sorted(results.items())
        for name, tally in tallies.items()
    ]


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """A table for each group and budget."""
    for group, budget in sorted({(row["group"], row["budget"]) for row in rows}):
        mine = [row for row in rows if (row["group"], row["budget"]) == (group, budget)]
        head = mine[0]
        title = f"{group}, budget {budget:,}, {head['half']} half: n = {head['conversations']} conversations"
        table = Table(title=f"{title}, {head['calls']} calls, {head['identifiers']} identifiers")
        for column in (
            "policy",
            "cost",
            "mean size",
            "max size",
            "over budget",
            "of it cannot fit",
            "recall",
            "pooled",
            "changed",
        ):
            table.add_column(column, justify="left" if column == "policy" else "right", no_wrap=column == "policy")
        for row in mine:
            table.add_row(
                row["policy"],
                f"{row['cost']:.2f}",
                f"{row['mean_tokens']:,}",
                f"{row['max_tokens']:,}",
                f"{row['over_budget']:.1%}",
                f"{row['cannot_fit']:.1%}",
                f"{row['recall']:.1%}",
                f"{row['recall_pooled']:.1%}",
                f"{row['prefix_changed']:.1%}",
            )
        console.print(table)


def with_peers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with those that `make bench-peers` measured on the same conversations."""
    if not PEERS.exists():
        return rows
    stored = msgspec.json.decode(PEERS.read_bytes())
    known = {(row["group"], row["budget"], row["conversations"], row["calls"]) for row in rows}
    same = [r for r in stored["rows"] if (r["group"], r["budget"], r["conversations"], r["calls"]) in known]
    return rows + [row for row in same if row["policy"] != "none"]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=DEFAULT_CORPUS)
    parser.add_argument("--budget", type=int, action="append", help="tokens; may be given several times")
    parser.add_argument("--half", choices=("tune", "report", "all"), default="report")
    parser.add_argument("--limit", type=int, default=0, help="conversations a group and budget; 0: all")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--no-files", action="store_true", help="print only")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay, print, and leave the figures and the plot."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    jobs = choose(options.corpus, options.budget or BUDGETS, options.half, options.limit)
    if not jobs:
        console.print(f"no conversation over a budget in {options.corpus}")
        return 1
    rows = report(run(jobs, options.processes, console), options.half)
    rows = with_peers(rows)
    show(rows, console)
    if options.no_files:
        return 0
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode({"limit": options.limit, "rows": rows}), indent=1))
    try:
        draw([row for row in rows if row["group"] == PLOTTED], DOCS)
    except ImportError:
        console.print("no plot: pip install 'secateur[bench]'", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())

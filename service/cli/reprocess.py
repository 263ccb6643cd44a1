"""``secateur reprocess``: stored conversations through the same core, on all cores, without a server."""

import argparse
import functools
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from contracts import Code, Refused, decode_snapshot, encode
from service.cli.command import add_command, add_policy, positive
from service.cli.policies import Source, choose_policy, policy_source
from service.cli.problem import Problem
from service.cli.progress import show_progress
from service.cli.records import STDIN, Record, Records, Reject, as_snapshot

if TYPE_CHECKING:
    from service.cli.command import Commands

CHUNK_RECORDS: Final = 64
CHUNK_BYTES: Final = 2**20


class Done(NamedTuple):
    """One result as it is written, and what it saved."""

    body: bytes
    tokens_before: int
    tokens_after: int


class Totals:
    """What a run came to."""

    results = rejects = tokens_before = tokens_after = 0

    def __str__(self) -> str:
        saved = 1 - self.tokens_after / self.tokens_before if self.tokens_before else 0.0
        tokens = f"tokens {self.tokens_before:,} -> {self.tokens_after:,} ({saved:.0%} saved)"
        return f"{self.results:,} results, {self.rejects:,} rejected, {tokens}"


def register(commands: "Commands") -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "reprocess",
        run,
        help="prune stored conversations in bulk",
        description=(
            "Prune stored conversations on all cores, without a server: one snapshot or bare messages array\n"
            "a line in (.gz and .xz are unpacked), one result a line out, in the same order. A line that is\n"
            "refused goes to the rejects file with file, line and code, and the exit code is 2; the others\n"
            "are written all the same. Both files appear whole when the run ends, or not at all."
        ),
        example="secateur reprocess stored-*.jsonl --policy beskar --out pruned.jsonl",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="JSONL files, or - for standard input")
    parser.add_argument("--out", required=True, type=Path, help="where the results go")
    parser.add_argument("--rejects", type=Path, metavar="FILE", help="where refused lines go (OUT.rejects.jsonl)")
    parser.add_argument("--jobs", type=positive, metavar="N", help="processes to use (default: one a core)")
    add_policy(parser, instead_of="default: each snapshot's own, else the default preset")


def run(options: argparse.Namespace) -> int:
    """Prune every stored conversation and say what that saved."""
    from service.cli.replacing import replacing

    policy = None if options.policy is None else policy_source(options.policy)
    rejects_path = options.rejects or _beside(options.out)
    _refuse_overwriting(options.files, options.out, rejects_path)
    records = Records(options.files)
    begun = time.monotonic()
    with replacing(options.out) as results, replacing(rejects_path) as rejects:
        totals = _reprocess(records, functools.partial(prune_records, policy=policy), options.jobs, results, rejects)
    print(f"secateur reprocess: {totals}, {time.monotonic() - begun:.1f} s", file=sys.stderr)
    if totals.rejects:
        print(f"secateur reprocess: the rejected lines are named in {rejects_path}", file=sys.stderr)
    return 2 if totals.rejects else 0


def prune_records(records: list[Record | Reject], policy: Source | None) -> list[Done | Reject]:
    """The outcome of each record; runs in a process of its own."""
    return [record if isinstance(record, Reject) else _prune_record(record, policy) for record in records]


def _prune_record(record: Record, policy: Source | None) -> Done | Reject:
    from pipeline import prune

    try:
        snapshot = decode_snapshot(as_snapshot(record.body, record.conversation_id))
        result = prune(snapshot, choose_policy(snapshot, policy))
        return Done(encode(result), result.tokens.before, result.tokens.after)
    except Refused as refused:
        return Reject(record.file, record.line, refused.code, refused.detail)
    except Exception as fault:  # an edge: one line must not end a run of hours
        return Reject(record.file, record.line, Code.INTERNAL, type(fault).__name__)


def _reprocess(
    records: Records,
    work: "functools.partial[list[Done | Reject]]",
    jobs: int | None,
    results: BinaryIO,
    rejects: BinaryIO,
) -> Totals:
    from service.cli.parallel import Parallel, count_cores

    totals = Totals()
    with (
        show_progress("reprocess", records.bytes_total) as progress,
        Parallel(work, _crashed, jobs or count_cores()) as parallel,
    ):
        for outcomes in parallel.run(_chunks(records)):
            _write(outcomes, totals, results, rejects)
            progress.update(records.bytes_read, str(totals))
    return totals


def _write(outcomes: Iterable[Done | Reject], totals: Totals, results: BinaryIO, rejects: BinaryIO) -> None:
    for outcome in outcomes:
        if isinstance(outcome, Reject):
            totals.rejects += 1
            rejects.write(encode(outcome._asdict()) + b"\n")
        else:
            totals.results += 1
            totals.tokens_before += outcome.tokens_before
            totals.tokens_after += outcome.tokens_after
            results.write(outcome.body + b"\n")


def _chunks(records: Iterable[Record | Reject]) -> Iterator[list[Record | Reject]]:
    chunk: list[Record | Reject] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += len(record.body) if isinstance(record, Record) else 0
        if len(chunk) >= CHUNK_RECORDS or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _crashed(record: Record | Reject) -> Done | Reject:
    return Reject(record.file, record.line, Code.CRASHED, "pruning this line killed its process")


def _beside(out: Path) -> Path:
    if out.exists() and not out.is_file():
        raise Problem(f"{out} is no file: say with --rejects where refused lines go")
    if not out.name:
        raise Problem("--out needs the name of a file")
    return out.with_suffix(".rejects.jsonl")


def _refuse_overwriting(inputs: Iterable[str], *outputs: Path) -> None:
    taken = {os.path.realpath(name) for name in inputs if name != STDIN}
    for output in outputs:
        path = os.path.realpath(output)
        if path in taken:
            raise Problem(f"{output}: named twice, so it would be overwritten")
        if os.path.isfile(path) or not os.path.exists(path):
            taken.add(path)

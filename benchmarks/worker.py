"""The worker's speed: drain of a preloaded stream, against a raw redis-py loop that does the same work; and idle CPU.

Both decode, prune and settle the same snapshots by the same functions and the same script, one process each, by turns.
The ratio shows what the worker does besides: FastStream, reader, log lines, counters, deadlines, heartbeat, fences.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil
from redis import Redis
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from service.embedded import serve
from service.keys import GROUP, Keys

ROUNDS: Final = 5
IDLE_S: Final = 20.0
IDLE_TARGET: Final = 0.01
SETTLING_S: Final = 3.0  # after a start, before a worker counts as idle
WITHIN_S: Final = 300.0
SEED: Final = 20_261_118
LOADED_AT_ONCE: Final = 64
KEYS: Final = Keys("main")
PLAIN_WIDTH: Final = 120

WORKER: Final = [sys.executable, "-m", "service.cli", "worker"]
RAW_LOOP: Final = [sys.executable, "-m", "benchmarks.worker", "--raw-loop"]


class Size(NamedTuple):
    """One line of the table: snapshots of about these bytes, and what the worker should reach."""

    name: str
    bytes: int
    snapshots: int
    batch: int
    target: float


SIZES: Final = (
    Size("1 KB", 1_000, 6_000, 64, 0.7),
    Size("100 KB", 100_000, 400, 20, 0.85),
    Size("1 MB", 1_000_000, 40, 2, 0.85),
)


def make_snapshot(number: int, size: int) -> bytes:
    """A conversation with tool rounds of about ``size`` bytes, each of another conversation."""
    chance = random.Random(f"{SEED}/{number}/{size}")
    words = [f"{chance.choice(('load', 'merge', 'retry'))}_{chance.randrange(10**6)}" for _ in range(60)]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find out why the nightly job fails."}]
    body = {
        "conversation_id": f"c-{number}",
        "snapshot_id": f"s-{number}",
        "sequence": 1,
        "format": "openai-chat",
        "messages": messages,
    }
    missing, each = size - len(json.dumps(body)), min(3_000, max(200, size // 12))
    while missing > 0:
        text = " ".join(chance.choices(words, k=each // 12))
        call = {"id": f"call-{len(messages)}", "type": "function"}
        name = {"name": "read_file", "arguments": json.dumps({"path": f"src/{chance.choice(words)}.py"})}
        added: list[dict[str, Any]] = [
            {"role": "assistant", "content": None, "tool_calls": [call | {"function": name}]},
            {"role": "tool", "tool_call_id": call["id"], "content": text},
        ]
        messages += added
        missing -= len(json.dumps(added))
    return json.dumps(body).encode()


def load(client: Redis, bodies: list[bytes]) -> None:
    """Put the snapshots into an empty lane."""
    client.flushall()
    client.xgroup_create(KEYS.snapshots, GROUP, id="0", mkstream=True)
    for start in range(0, len(bodies), LOADED_AT_ONCE):
        pipeline = client.pipeline(transaction=False)
        for body in bodies[start : start + LOADED_AT_ONCE]:
            pipeline.xadd(KEYS.snapshots, {"__data__": body})
        pipeline.execute()


@contextmanager
def running(command: list[str], url: str, log: Path, **environ: str) -> Iterator[psutil.Popen]:
    """A process of the benchmark, ended with the block."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SECATEUR_")}
    clean |= {"SECATEUR_REDIS_URL": url, "SECATEUR_LOG": "json"} | environ
    with log.open("ab") as output:
        process = psutil.Popen(command, env=clean, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def drain(command: list[str], client: Redis, url: str, log: Path, size: Size, bodies: list[bytes]) -> float:
    """Snapshots per second, from the first settled to the last, by the server's clock."""
    load(client, bodies)
    with running(command, url, log, BENCH_COUNT=str(size.batch)):
        deadline = time.monotonic() + WITHIN_S
        while client.xlen(KEYS.metrics) < len(bodies):
            if time.monotonic() > deadline:
                raise SystemExit(f"not drained within {WITHIN_S:.0f} s: see {log}")
            time.sleep(0.02)
    rows: Any = client.xrange(KEYS.metrics)
    stamps = [int(entry_id.partition(b"-")[0]) for entry_id, _ in rows]
    # What was settled in the first millisecond was worked on before the clock began.
    late = sum(stamp > stamps[0] for stamp in stamps)
    return late * 1000 / max(1, stamps[-1] - stamps[0])


def measure_idle(url: str, log: Path) -> float:
    """The share of one core that a worker with nothing to do takes, its supervisor included."""
    with running(WORKER, url, log) as worker:
        time.sleep(SETTLING_S)
        family = [worker, *worker.children(recursive=True)]
        if len(family) < 2:
            raise SystemExit(f"the worker did not start: see {log}")
        before = cpu_seconds(family)
        time.sleep(IDLE_S)
        return (cpu_seconds(family) - before) / IDLE_S


def cpu_seconds(family: list[Any]) -> float:
    """Processor time of some processes so far."""
    return sum(sum(process.cpu_times()[:2]) for process in family)


async def raw_loop(url: str, count: int) -> None:
    """The reference: read, prune, settle, without anything around it."""
    from service.entry import Desk, prune_entry
    from service.lane import connect
    from service.observe import open_log
    from service.reader import read_entries
    from service.settings import load_settings
    from service.settle import Settler

    settings = load_settings({"SECATEUR_REDIS_URL": url})
    desk = Desk("raw", KEYS.batch, settings.policy, settings.max_body_bytes, settings.attempts)

    async def no_groups() -> None:
        raise SystemExit("the group is gone")

    async with connect(url) as client:
        settler = Settler(client, KEYS, settings, open_log("json", "error"), no_groups)
        while True:
            asked: dict[Any, Any] = {KEYS.snapshots: ">"}
            reply: Any = await client.xreadgroup(GROUP, "raw", asked, count=count, block=2000)
            for stream, rows in (reply or {}).items():
                await settler.settle([prune_entry(entry, desk) for entry in read_entries(stream.decode(), rows)])


def run_raw_loop() -> int:
    """Be the reference process until told to end."""
    from service.worker import loop_factory

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(raw_loop(os.environ["SECATEUR_REDIS_URL"], int(os.environ["BENCH_COUNT"])))
    return 0


class Rates(NamedTuple):
    """Snapshots per second of both, and the worker's share: medians over the rounds."""

    raw: float
    worker: float
    ratio: float


def compare(size: Size, client: Redis, url: str, log: Path, rounds: int, progress: Progress) -> Rates:
    """Drain by turns; a ratio is taken within a round, so that what the machine does besides hits both alike."""
    bodies = [make_snapshot(number, size.bytes) for number in range(size.snapshots)]
    pairs = []
    for number in progress.track(range(rounds), description=size.name):
        order = [RAW_LOOP, WORKER] if number % 2 == 0 else [WORKER, RAW_LOOP]
        rates = [drain(command, client, url, log, size, bodies) for command in order]
        pairs.append(rates if number % 2 == 0 else rates[::-1])
    raw, worker = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    return Rates(raw, worker, statistics.median(second / first for first, second in pairs))


def main() -> int:
    """Print the table; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--raw-loop", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"runs of each by turns (default: {ROUNDS})")
    parser.add_argument("--only", choices=[size.name for size in SIZES], help="one size")
    options = parser.parse_args()
    if options.raw_loop:
        return run_raw_loop()
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    table = Table("snapshot", "n", "raw loop /s", "worker /s", "ratio", "target", title="Drain of a preloaded stream")
    is_met = True
    with tempfile.TemporaryDirectory() as directory, serve(None, Path(directory)) as url, Redis.from_url(url) as client:
        log = Path(directory) / "log"
        with Progress(console=console, disable=not sys.stdout.isatty()) as progress:
            for size in SIZES:
                if options.only not in (None, size.name):
                    continue
                rates = compare(size, client, url, log, options.rounds, progress)
                is_met &= rates.ratio >= size.target
                shown = (f"{rates.raw:,.0f}", f"{rates.worker:,.0f}", f"{rates.ratio:.2f}", f"≥ {size.target}")
                table.add_row(size.name, f"{size.snapshots:,} x {options.rounds}", *shown)
        client.flushall()
        idle = measure_idle(url, log)
    console.print(table)
    console.print(f"An idle worker with its supervisor takes {idle:.2%} of one core (target: under {IDLE_TARGET:.0%}).")
    return 0 if is_met and idle < IDLE_TARGET else 1


if __name__ == "__main__":
    sys.exit(main())

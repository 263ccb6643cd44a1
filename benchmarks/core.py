"""The core's speed, bytes in to bytes out: against bare JSON on the same bytes, as it grows, and on short arrays."""

import argparse
import cProfile
import gc
import pstats
import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import msgspec
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.generated import generate, generate_some
from benchmarks.stored import DEFAULT_CORPUS, body_of, corpus_files, read_records
from contracts import Policy, decode_snapshot, encode, load_policy
from pipeline import prune
from tests.pipeline.policies import HARSH_POLICIES, PRESET_POLICIES

TARGET_RATIO: Final = 0.25
TARGET_GROWTH: Final = 1.1  # of a doubling, against the reference's own: more memory is slower memory
TARGET_P99_MS: Final = 1.0
REPEAT: Final = 3
LINEAR_REPEAT: Final = 5
LENGTHS: Final = (1_250, 2_500, 5_000, 10_000)
GROWTHS: Final = (12, 24, 48, 96)
BYTES_MESSAGES: Final = 160
SHORT_LENGTHS: Final = range(20, 101)
SHORT_EACH: Final = 10
PLAIN_WIDTH: Final = 120

Body = tuple[str, bytes]  # a format and a snapshot
Act = Callable[[bytes], object]


class Timing(NamedTuple):
    """Seconds spent on some bodies, and how many there were."""

    seconds: float
    bodies: int
    bytes: int


def bare(body: bytes) -> bytes:
    """The reference: the same bytes to plain Python objects and back."""
    return msgspec.json.encode(msgspec.json.decode(body))


def whole(policy: Policy) -> Act:
    """What a worker does between reading an entry and settling it."""
    return lambda body: encode(prune(decode_snapshot(body), policy))


def seconds(act: Act, body: bytes) -> float:
    """How long one run takes."""
    start = perf_counter()
    act(body)
    return perf_counter() - start


def best(act: Act, body: bytes, repeat: int) -> float:
    """The fastest of some runs: the others were disturbed."""
    return min(seconds(act, body) for _ in range(repeat))


def load(corpus: Path) -> tuple[list[Body], str]:
    """Every stored conversation, or generated ones where there are none; and which."""
    stored = [body_of(record) for record in read_records(corpus_files(corpus))]
    bodies = stored or generate_some()
    return [(decode_snapshot(body).format, body) for body in bodies], "corpus" if stored else "generated"


def measure(bodies: list[Body], acts: dict[str, Act], repeat: int, console: Console) -> dict[tuple[str, str], Timing]:
    """Seconds by act and format; all acts take turns on each body, so that a slow moment slows them all."""
    timings: dict[tuple[str, str], Timing] = {}
    shown = track(bodies, "conversations", console=console, disable=not console.is_terminal)
    for format_name, body in shown:
        times = {name: float("inf") for name in acts}
        for _ in range(repeat):
            for name, act in acts.items():
                times[name] = min(times[name], seconds(act, body))
        for name, taken in times.items():
            so_far = timings.get((name, format_name), Timing(0.0, 0, 0))
            total = Timing(so_far.seconds + taken, so_far.bodies + 1, so_far.bytes + len(body))
            timings[name, format_name] = total
    return timings


def ratio_table(timings: dict[tuple[str, str], Timing], presets: Iterable[str]) -> Table:
    """Reference time over ours, per preset and format; higher is better."""
    formats = sorted({name for _, name in timings})
    table = Table("preset", *formats, "all", f"≥ {TARGET_RATIO}", title="Speed as a share of bare msgspec")
    for preset in presets:
        ratios = [_ratio(timings, preset, [name]) for name in formats]
        total = _ratio(timings, preset, formats)
        table.add_row(preset, *(f"{ratio:.3f}" for ratio in ratios), f"{total:.3f}", _verdict(total >= TARGET_RATIO))
    table.add_section()
    sizes = [timings["bare", name] for name in formats]
    table.add_row("n", *(str(size.bodies) for size in sizes), str(sum(size.bodies for size in sizes)), "")
    table.add_row("MB", *(f"{s.bytes / 1e6:.1f}" for s in sizes), f"{sum(s.bytes for s in sizes) / 1e6:.1f}", "")
    table.add_row("bare MB/s", *(f"{s.bytes / 1e6 / s.seconds:.0f}" for s in sizes), "", "")
    return table


def _ratio(timings: dict[tuple[str, str], Timing], preset: str, formats: list[str]) -> float:
    reference = sum(timings["bare", name].seconds for name in formats)
    return reference / sum(timings[preset, name].seconds for name in formats)


def _verdict(is_met: bool) -> str:
    return "yes" if is_met else "NO"


def linear_table(policies: dict[str, Policy], console: Console) -> Table:
    """Milliseconds as messages and bytes double, and the largest factor between neighbours against the reference's."""
    bodies = _growing()
    title = "Milliseconds as a snapshot grows"
    table = Table("policy", *bodies, "worst doubling", "bare = 1", f"≤ {TARGET_GROWTH}", title=title)
    acts = {"bare": bare} | {name: whole(policy) for name, policy in policies.items()}
    reference: list[float] = []
    for name, act in track(acts.items(), "growing", console=console, disable=not console.is_terminal):
        times = [best(act, body, LINEAR_REPEAT) for body in bodies.values()]
        doublings = _doublings(times)
        reference = reference or doublings
        growth = max(ours / theirs for ours, theirs in zip(doublings, reference, strict=True))
        row = (f"{taken * 1e3:.1f}" for taken in times)
        table.add_row(name, *row, f"{max(doublings):.2f}", f"{growth:.2f}", _verdict(growth <= TARGET_GROWTH))
    return table


def _doublings(times: list[float]) -> list[float]:
    halves = (times[: len(LENGTHS)], times[len(LENGTHS) :])
    return [later / earlier for half in halves for earlier, later in pairwise(half)]


def _growing() -> dict[str, bytes]:
    long = {f"{length:,}": generate("anthropic", length) for length in LENGTHS}
    large = (generate("openai-chat", BYTES_MESSAGES, growth=growth) for growth in GROWTHS)
    return long | {f"{len(body) / 1e6:.1f} MB": body for body in large}


def short_table() -> Table:
    """Percentiles over arrays of 20 to 100 messages, pruned to half their size; each the best of a few runs."""
    table = Table("format", "n", "median ms", "99th ms", f"< {TARGET_P99_MS:g} ms", title="20 to 100 messages")
    for wire in ("anthropic", "openai-chat"):
        times = sorted(_short_times(wire))
        median, p99 = times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3
        table.add_row(wire, str(len(times)), f"{median:.3f}", f"{p99:.3f}", _verdict(p99 < TARGET_P99_MS))
    return table


def _short_times(wire: str) -> Iterable[float]:
    for length in SHORT_LENGTHS:
        for number in range(SHORT_EACH):
            body = generate("anthropic" if wire == "anthropic" else "openai-chat", length, number=number)
            tokens = prune(decode_snapshot(body), load_policy({})).tokens.before
            limit = {"strategy": "token_budget", "max_tokens": max(tokens // 2, 1)}
            yield best(whole(load_policy({"preset": "xzatoma", "prune": limit})), body, REPEAT)


def profile(bodies: list[Body], policy: Policy) -> None:
    """Where the time goes, by function."""
    act = whole(policy)
    profiler = cProfile.Profile()
    profiler.enable()
    for _, body in bodies:
        act(body)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> int:
    """Measure, print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.core", description=__doc__)
    parser.add_argument("--corpus", type=Path, default=DEFAULT_CORPUS)
    parser.add_argument("--format", help="only the conversations of one wire format")
    parser.add_argument("--repeat", type=int, default=REPEAT)
    parser.add_argument("--only", choices=("ratio", "linear", "short"))
    parser.add_argument("--profile", choices=sorted(PRESET_POLICIES), metavar="PRESET")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    bodies, source = load(options.corpus) if options.profile or options.only in (None, "ratio") else ([], "")
    bodies = [body for body in bodies if options.format in (None, body[0])]
    gc.freeze()
    if options.profile:
        profile(bodies, PRESET_POLICIES[options.profile])
        return 0
    if options.only in (None, "ratio"):
        acts = {"bare": bare} | {name: whole(policy) for name, policy in PRESET_POLICIES.items()}
        timings = measure(bodies, acts, options.repeat, console)
        console.print(ratio_table(timings, PRESET_POLICIES), f"{source}, best of {options.repeat}, all acts by turns\n")
    if options.only in (None, "linear"):
        console.print(linear_table(PRESET_POLICIES | HARSH_POLICIES, console))
    if options.only in (None, "short"):
        console.print(short_table())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The long form as a program: `python -m tests.faults --snapshots 100000 --faults 400 --seed 7`."""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tests.faults.report import Report
from tests.faults.storm import Plan, Storm, run_storm

SNAPSHOTS_PER_POISON = {"crash": 2_500, "hang": 10_000, "memory": 10_000}


def main() -> int:
    """Run one storm; 1 when anything was lost, doubled or judged wrongly."""
    options = read_options()
    plan = Plan(
        options.seed,
        options.snapshots,
        options.faults,
        poisons={kind: max(1, options.snapshots // share) for kind, share in SNAPSHOTS_PER_POISON.items()},
        workers=options.workers,
        mutant=options.mutant,
    )
    print(f"seed {plan.seed}")
    with tempfile.TemporaryDirectory(prefix="faults-") as directory:
        storm = run_shown(plan, Path(directory))
    report = Report(plan.seed)
    report.add_storm(storm)
    report.write(options.out)
    print(report.text())
    if wrong := storm.faults():
        print(f"WRONG: {wrong}")
    return int(bool(wrong))


def read_options() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--snapshots", type=int, default=100_000)
    parser.add_argument("--faults", type=int, default=400)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--mutant", default="", help="publish-then-ack or delivery-count: must be found wrong")
    parser.add_argument("--out", type=Path, default=Path("build/faults.json"))
    return parser.parse_args()


def run_shown(plan: Plan, directory: Path) -> Storm:
    """Run with a bar on the terminal, or with plain lines now and then."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, refresh_per_second=4) as bar:
        task = bar.add_task("snapshots", total=plan.snapshots)
        every, said = max(1, plan.snapshots // 20), 0

        def show(settled: int, injected: int) -> None:
            nonlocal said
            bar.update(task, completed=min(settled, plan.snapshots), description=f"{injected} faults")
            if not console.is_terminal and settled >= said + every:
                said = settled
                print(f"{settled} settled, {injected} faults", file=sys.stderr, flush=True)

        return run_storm(plan, directory, show)


if __name__ == "__main__":
    sys.exit(main())

"""``secateur demo``: a fleet, two workers, and what pruning saves, in one terminal."""

import argparse
from typing import TYPE_CHECKING

from service.cli.command import add_command, positive

if TYPE_CHECKING:
    from service.cli.command import Commands


def register(commands: "Commands") -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "demo",
        run,
        help="watch simulated agents being pruned",
        description=(
            "Start a server, workers and a simulated fleet of coding agents, show live what pruning saves,\n"
            "then count that every snapshot got exactly one result. Leaves nothing running.\n"
            "With SECATEUR_REDIS_URL set it uses lane `demo` of that server instead of its own."
        ),
        example="secateur demo --seconds 5 --agents 10",
    )
    parser.add_argument("--seconds", type=positive, default=20, metavar="N", help="how long the fleet works (20)")
    parser.add_argument("--workers", type=positive, default=2, metavar="N", help="worker processes (2)")
    parser.add_argument("--agents", type=positive, default=24, metavar="N", help="agents that work at a time (24)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the same seed, the same conversations (1)")


def run(options: argparse.Namespace) -> int:
    """Run the demo; 1 when a snapshot had not exactly one result or a worker died."""
    from service.cli.connect import read_settings
    from service.demo import Plan, run_demo

    plan = Plan(seconds=options.seconds, workers=options.workers, agents=options.agents, seed=options.seed)
    return run_demo(read_settings(lane="demo"), plan)

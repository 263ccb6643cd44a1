"""``secateur worker``: prune snapshots from the stream until told to stop."""

import argparse
import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from service.cli.command import add_command, add_lane, positive
from service.cli.connect import reach_server, read_settings, shown
from service.cli.problem import Problem

if TYPE_CHECKING:
    from service.cli.command import Commands
    from service.settings import Settings


def register(commands: "Commands") -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "worker",
        run,
        help="prune snapshots from the stream",
        description=(
            "Read snapshots of a lane, prune them and publish the results, until SIGTERM or Ctrl-C.\n"
            "Uses the server at SECATEUR_REDIS_URL; without it, starts or joins an embedded one."
        ),
        example="secateur worker --workers 2",
    )
    add_lane(parser)
    parser.add_argument("--workers", type=positive, metavar="N", help="processes (default: SECATEUR_WORKERS, else 1)")


def run(options: argparse.Namespace) -> int:
    """Work until a signal comes."""
    from service.worker import run_worker

    workers = None if options.workers is None else str(options.workers)
    settings = read_settings(lane=options.lane, workers=workers)
    with reach_server(settings) as url:
        settings = msgspec.structs.replace(settings, redis_url=url)
        _check(settings)
        _end_with_terminal()
        print(f"secateur worker: lane {settings.lane} of {shown(url)}", file=sys.stderr)
        return run_worker(settings)


def _check(settings: "Settings") -> None:
    from service.errors import StartRefused
    from service.preflight import check_start

    try:
        check_start(settings)
    except StartRefused as error:
        raise Problem(str(error)) from error


def _end_with_terminal() -> None:
    # The loop has no place for an exception out of a signal handler, so SIGHUP goes the way of SIGTERM.
    def terminate(_number: int, _frame: FrameType | None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, terminate)

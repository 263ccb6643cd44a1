"""The run of the demo: server, workers and fleet together, then the account."""

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from rich.console import Console

from service.cli.connect import open_client, reach_server, shown
from service.demo.closing import find_problems, print_closing
from service.demo.show import Show, showing
from service.demo.tally import Tally
from service.demo.traffic import Traffic
from service.demo.workers import Workers, start_workers
from service.keys import GROUP, Keys
from service.settings import Settings

if TYPE_CHECKING:
    from redis import Redis

WORKERS_UP_WITHIN_S: Final = 15.0
DRAIN_WITHIN_S: Final = 20.0


class Plan(NamedTuple):
    """How large and how long."""

    seconds: int = 20
    workers: int = 2
    agents: int = 24
    seed: int = 1


def run_demo(settings: Settings, plan: Plan) -> int:
    """Run the plan; 0 when every snapshot got exactly one result and every worker ended well."""
    console = Console(highlight=False)
    keys, tally = Keys(settings.lane), Tally()
    with tempfile.TemporaryDirectory(prefix="secateur-demo-") as scratch:
        settings = msgspec.structs.replace(settings, data_dir=Path(scratch, "server"))
        with reach_server(settings) as url, open_client(url) as client:
            traffic = Traffic(client, keys, tally, run=_name_run(), seed=plan.seed, agents=plan.agents)
            title = f"Secateur demo: {plan.agents} agents, {plan.workers} workers, lane {keys.lane} of {shown(url)}"
            with start_workers(plan.workers, keys.lane, url, Path(scratch)) as workers:
                with showing(console, title, plan.seconds) as show:
                    _await_workers(client, keys, workers)
                    _work(traffic, tally, workers, show, plan.seconds)
                problems = workers.problems() or workers.end()
            while traffic.collect(0.0):  # a second result would show itself now
                pass
    problems += find_problems(tally)
    print_closing(console, tally, problems)
    return 1 if problems else 0


def _work(traffic: Traffic, tally: Tally, workers: Workers, show: Show, seconds: int) -> None:
    """Let the fleet work for a while, then wait for the results still under way."""
    begun = time.monotonic()
    now = 0.0
    while now < seconds and not workers.problems():
        traffic.publish_due(now)
        traffic.collect(now)
        show.update(tally, now)
        now = time.monotonic() - begun
    while tally.waiting and now < seconds + DRAIN_WITHIN_S and not workers.problems():
        traffic.collect(now)
        show.update(tally, now, "finishing")
        now = time.monotonic() - begun
    show.update(tally, now, "done")


def _await_workers(client: "Redis", keys: Keys, workers: Workers) -> None:
    """Wait until the workers read, so that their start does not count as queue delay."""
    deadline = time.monotonic() + WORKERS_UP_WITHIN_S
    while time.monotonic() < deadline and not workers.problems():
        if _count_consumers(client, keys) >= len(workers.processes):
            return
        time.sleep(0.05)


def _count_consumers(client: "Redis", keys: Keys) -> int:
    from redis import ResponseError

    try:
        consumers: Any = client.xinfo_consumers(keys.snapshots, GROUP)
    except ResponseError:  # the first worker makes stream and group
        return 0
    return len(consumers)


def _name_run() -> str:
    # The same seed gives the same ids: without this a second run would only meet the first one's markers.
    return f"demo-{time.time_ns() // 1_000_000:x}"

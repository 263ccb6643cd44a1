"""A storm: snapshots flow, faults strike, dead workers are replaced, and in the end every outcome is checked."""

import math
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.faults.check import Findings, Outcomes, judge, read_outcomes
from tests.faults.fleet import Fleet
from tests.faults.nemesis import Injection, Nemesis, draw_faults
from tests.faults.server import running_server
from tests.faults.traffic import BACKLOG, Producer, snapshots

TURN_S: Final = 0.01
GAP_S: Final = (0.1, 1.0)  # between two faults: workers get a chance to start, not always to finish
STALLED_AFTER_S: Final = 60.0
MOST_FAILED_STARTS: Final = 50

Progress = Callable[[int, int], None]  # settled, injected


@dataclass(frozen=True)
class Plan:
    """What to run; the same seed draws the same traffic and the same faults."""

    seed: int
    snapshots: int
    faults: int
    poisons: dict[str, int] = field(default_factory=dict)
    workers: int = 3
    claim_after_ms: int = 700
    mutant: str = ""
    kinds: tuple[str, ...] = ()


@dataclass
class Storm:
    """What came of a run."""

    plan: Plan
    findings: Findings
    injections: list[Injection]
    deaths: Counter[str]
    strange_deaths: list[int]
    outcomes: Outcomes
    resends: int
    duration_s: float

    def faults(self) -> dict[str, Any]:
        """Everything that is wrong."""
        strange = {"strange_deaths": self.strange_deaths} if self.strange_deaths else {}
        return self.findings.faults() | strange


def run_storm(plan: Plan, directory: Path, progress: Progress = lambda settled, injected: None) -> Storm:
    """Run the plan on a server and workers of its own; nothing is left running."""
    began = time.monotonic()
    chance = random.Random(f"faults/{plan.seed}")
    faults = draw_faults(chance, plan.faults) if not plan.kinds else chance.choices(plan.kinds, k=plan.faults)
    claim_s = plan.claim_after_ms / 1000
    with (
        running_server(directory / "server") as server,
        Fleet(
            server.url, directory, plan.workers, mutant=plan.mutant, claim_after_ms=str(plan.claim_after_ms)
        ) as fleet,
    ):
        producer = Producer(server, snapshots(plan.seed, plan.snapshots, plan.poisons), plan.seed)
        nemesis = Nemesis(server, fleet, chance, claim_s)
        producer.start()
        try:
            _drive(plan, producer, nemesis, faults, progress)
        finally:
            nemesis.end()
            producer.stop()
        with server.client(socket_timeout=30.0) as client:
            outcomes = read_outcomes(client)
            findings = judge(client, outcomes, producer.fates, producer.resends)
        return Storm(
            plan=plan,
            findings=findings,
            injections=nemesis.injections,
            deaths=fleet.deaths,
            strange_deaths=fleet.strange,
            outcomes=outcomes,
            resends=producer.resends,
            duration_s=time.monotonic() - began,
        )


def _drive(plan: Plan, producer: Producer, nemesis: Nemesis, faults: list[str], progress: Progress) -> None:
    waiting, settled = list(reversed(faults)), 0
    moved = next_at = time.monotonic()
    while True:
        nemesis.turn()
        if producer.is_alive():
            waiting += nemesis.take_missed()
        producer.allowed = _milestone(plan, len(waiting)) + BACKLOG if waiting else math.inf
        now = nemesis.settled()
        if now is not None and now != settled:
            settled, moved = now, time.monotonic()
            progress(settled, len(nemesis.injections))
        is_due = settled >= _milestone(plan, len(waiting)) and time.monotonic() >= next_at
        if waiting and is_due and nemesis.inject(waiting[-1]):
            waiting.pop()
            moved = time.monotonic()
            next_at = moved + nemesis.chance.uniform(*GAP_S)
        is_over = not producer.is_alive() and not waiting and nemesis.is_quiet
        if producer.fault:
            raise producer.fault
        if is_over and nemesis.unsettled() == 0:
            return
        # A run that stands still is judged as it is: what was not settled is found as lost.
        if time.monotonic() - moved > STALLED_AFTER_S or nemesis.fleet.deaths["start"] > MOST_FAILED_STARTS:
            return
        time.sleep(TURN_S)


def _milestone(plan: Plan, faults_left: int) -> float:
    """The number of settled snapshots at which the next fault strikes: evenly over the run."""
    return plan.snapshots * 0.95 * (plan.faults - faults_left) / max(1, plan.faults)

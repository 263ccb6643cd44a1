"""Crash points: a worker dies at every place where its state differs, and its entries are taken over in time."""

import time
from pathlib import Path

import pytest

from tests.faults.fleet import held_by, still_pending
from tests.faults.points import POINTS
from tests.faults.report import Report, Row
from tests.faults.scene import Scene, playing
from tests.faults.server import Server

pytestmark = pytest.mark.faults

CLAIM_AFTER_MS = 700
SENT_PER_TRY = 1_000
TRIES = 30  # the armed one of three must be the one that claims
SLACK_S = 3.0  # for a machine that has other things to do


def allow_more(scene: Scene) -> None:
    """Let the producer send enough to come to any point, and no more: every result is kept until the end."""
    scene.producer.allowed = len(scene.producer.fates) + SENT_PER_TRY


def die_at(scene: Scene, point: str) -> float:
    """Arm one worker, wait for its death, and until what it held is settled; seconds from death to that."""
    scene.wait_until(lambda: scene.fleet.pids, "a worker")
    pid = scene.fleet.pids[0]
    scene.fleet.arms.arm(pid, point)
    for _ in range(TRIES):
        allow_more(scene)
        if scene.has_come(lambda: pid not in scene.fleet.pids, within_s=3.0):
            break
        # What only a reaper comes across needs the death of others first, and while they hold something.
        allow_more(scene)
        scene.progress()
        for other in scene.fleet.pids[1:]:
            scene.fleet.kill(other)
    assert pid not in scene.fleet.pids, f"never came to {point}"
    began = time.monotonic()
    held = held_by(scene.client, pid)
    if held:
        scene.wait_until(lambda: not still_pending(scene.client, held), f"recovery from a death {point}")
    return time.monotonic() - began if held else 0.0


def test_a_death_at_any_point_loses_and_doubles_nothing(
    server: Server, tmp_path: Path, seed: int, is_short: bool, report: Report
) -> None:
    times = 1 if is_short else 50
    recoveries: dict[str, list[float]] = {point: [] for point in POINTS}
    with playing(server, tmp_path, seed, workers=3, claim_after_ms=str(CLAIM_AFTER_MS)) as scene:
        scene.progress()
        for _ in range(times):
            for point, seconds in recoveries.items():
                seconds.append(die_at(scene, point))
        findings = scene.finish()
        strange = scene.fleet.strange

    for point, seconds in recoveries.items():
        row = Row(f"death {point}", times, len(findings.lost), len(findings.doubled))
        report.add(row.recovering(seconds))
    assert findings.faults() == {}
    assert strange == []


def test_what_a_dead_worker_held_is_settled_within_twice_the_claim_time(
    server: Server, tmp_path: Path, seed: int, is_short: bool, report: Report
) -> None:
    times, seconds = (3 if is_short else 20), []
    with playing(server, tmp_path, seed, claim_after_ms=str(CLAIM_AFTER_MS)) as scene:
        for _ in range(times):
            seconds.append(die_at(scene, "after_read"))
        findings = scene.finish()

    row = Row("death of a worker, others at work", times, len(findings.lost), len(findings.doubled))
    report.add(row.recovering(seconds))
    assert findings.faults() == {}
    assert max(seconds) < 2 * CLAIM_AFTER_MS / 1000 + SLACK_S

"""Storms: random faults over flowing snapshots, and proof that the check finds what careless workers do."""

from pathlib import Path

import pytest

from tests.faults.nemesis import FAULTS
from tests.faults.report import Report
from tests.faults.storm import Plan, run_storm

pytestmark = pytest.mark.faults

POISONS = {"crash": 40, "hang": 10, "memory": 10}


def test_every_snapshot_has_exactly_one_outcome_whatever_breaks(
    tmp_path: Path, seed: int, is_short: bool, report: Report
) -> None:
    plan = (
        Plan(seed, 6_000, 60, {"crash": 3, "hang": 1, "memory": 2}) if is_short else Plan(seed, 100_000, 420, POISONS)
    )

    storm = run_storm(plan, tmp_path)
    report.add_storm(storm)

    assert storm.faults() == {}, f"seed {seed}"
    assert len(storm.injections) >= plan.faults * 0.9  # a worker may die of something else before its point
    if not is_short:
        assert FAULTS.keys() <= {injection.fault for injection in storm.injections}


def test_the_check_finds_what_publish_then_ack_doubles(tmp_path: Path, seed: int) -> None:
    storm = run_storm(Plan(seed, 1_500, 20, mutant="publish-then-ack", kinds=("kill -9 worker",)), tmp_path)

    assert storm.findings.doubled
    assert storm.findings.rows_doubled
    assert not storm.findings.lost


def test_the_check_finds_the_innocents_that_a_delivery_count_convicts(tmp_path: Path, seed: int) -> None:
    storm = run_storm(Plan(seed, 600, 0, {"crash": 2}, workers=2, mutant="delivery-count"), tmp_path)

    assert storm.findings.innocent_dead
    assert not storm.findings.poison_alive

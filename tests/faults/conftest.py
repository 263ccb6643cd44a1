"""What the fault tests share: the form, the seed, and a report that is printed when all have run."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.report import Report
from tests.faults.server import Server, running_server

REPORT_FILE = Path(os.environ.get("FAULTS_REPORT", "build/faults.json"))
REPORT = Report()


@pytest.fixture(scope="session")
def is_short() -> bool:
    """Whether the short form was asked for, as every change gets it."""
    return os.environ.get("FAULTS_FORM") == "short"


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of this run: the one asked for, else a fresh one; either is in the report."""
    REPORT.seed = int(os.environ.get("FAULTS_SEED") or random.SystemRandom().randrange(10**6))
    return REPORT.seed


@pytest.fixture(scope="session")
def report() -> Report:
    """Where a test writes its row."""
    return REPORT


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, with a log that is synced always."""
    with running_server(tmp_path / "server") as server:
        yield server


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was injected and what came of it; keep the same figures as JSON."""
    if REPORT.rows:
        REPORT.write(REPORT_FILE)
        terminalreporter.section("faults")
        terminalreporter.write_line(REPORT.text())
        terminalreporter.write_line(f"figures: {REPORT_FILE}")

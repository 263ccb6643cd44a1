"""``secateur demo`` and ``secateur worker`` as processes: the account balances, and nothing is left running."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

SERVER_NAME = "valkey-server"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a command whose children can be found again wherever they went; none of them outlives the test."""
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "tmp").mkdir()

    def start_command(*arguments: str) -> "subprocess.Popen[str]":
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SECATEUR_")}
        command = subprocess.Popen(
            [sys.executable, "-P", "-m", "service.cli", *arguments],
            env=environ | {"SECATEUR_DATA_DIR": str(tmp_path / "data"), "TMPDIR": str(tmp_path / "tmp")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(command)
        return command

    yield start_command
    for command in started:
        command.kill()
        command.communicate()
    for process in running(tmp_path):
        process.kill()


def running(tmp_path: Path) -> list[psutil.Process]:
    """Every process of the test."""
    return [process for process in psutil.process_iter() if _is_of(process, tmp_path)]


def _is_of(process: psutil.Process, tmp_path: Path) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        # The server writes its title over its environment, but it works in its data directory.
        in_directory = process.cwd().startswith(f"{tmp_path}/")
        return in_directory or process.environ().get("TMPDIR") == str(tmp_path / "tmp")
    except (psutil.Error, OSError):
        return False


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def has_server(tmp_path: Path) -> bool:
    return any(process.name().startswith(SERVER_NAME) for process in running(tmp_path))


def test_the_demo_accounts_for_every_snapshot_and_leaves_nothing_running(start: Start, tmp_path: Path) -> None:
    demo = start("demo", "--seconds", "3")
    output, _ = demo.communicate(timeout=60)

    assert demo.returncode == 0, output
    assert "Every snapshot has exactly one result" in output
    assert "PROBLEM" not in output
    assert "\x1b" not in output
    assert running(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_the_demo_with_its_workers_and_its_server(
    number: signal.Signals, start: Start, tmp_path: Path
) -> None:
    demo = start("demo", "--seconds", "60")
    wait_until(lambda: len(running(tmp_path)) >= 6)  # the demo, its server, two supervisors and their workers
    demo.send_signal(number)
    output, _ = demo.communicate(timeout=30)

    assert demo.returncode in (130, 143)
    assert "Traceback" not in output
    assert running(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_a_worker_with_its_server(
    number: signal.Signals, workers: str, start: Start, tmp_path: Path
) -> None:
    worker = start("worker", "--workers", workers)
    assert worker.stdout is not None
    for _ in range(1 + int(workers)):  # where it works, and that each worker has started
        worker.stdout.readline()
    worker.send_signal(number)
    output, _ = worker.communicate(timeout=30)

    assert worker.returncode in (0, 130, 143)
    assert "Traceback" not in output
    assert running(tmp_path) == []


def test_a_signal_while_the_server_starts_leaves_no_server(start: Start, tmp_path: Path) -> None:
    worker = start("worker")
    wait_until(lambda: has_server(tmp_path))
    worker.terminate()
    output, _ = worker.communicate(timeout=30)

    assert "Traceback" not in output
    assert running(tmp_path) == []


def test_a_second_signal_does_not_leave_the_server_behind(start: Start, tmp_path: Path) -> None:
    worker = start("worker")
    assert worker.stdout is not None
    worker.stdout.readline()
    worker.stdout.readline()
    while worker.poll() is None:
        worker.terminate()
        time.sleep(0.002)

    wait_until(lambda: not running(tmp_path))
    assert not (tmp_path / "data" / "url").exists()

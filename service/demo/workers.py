"""Worker processes of the demo: started together, ended by SIGTERM, never left behind."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

END_WITHIN_S: Final = 25.0  # a worker's own grace, and a little
LAST_LINES: Final = 5


class Workers:
    """Some running workers and where each one's log goes."""

    def __init__(self, processes: list[subprocess.Popen[bytes]], logs: list[Path]) -> None:
        self.processes, self.logs = processes, logs

    def problems(self) -> list[str]:
        """One line for every worker that ended although nobody asked it to, with the end of its log."""
        return [
            f"worker {process.pid} died with code {process.returncode}: {_last_lines(log)}"
            for process, log in zip(self.processes, self.logs, strict=True)
            if process.poll() is not None
        ]

    def end(self) -> list[str]:
        """Ask every worker to finish and wait for it; one line for each that did not."""
        for process in self.processes:
            process.terminate()
        deadline = time.monotonic() + END_WITHIN_S
        return [line for process in self.processes for line in _wait(process, deadline)]

    def kill(self) -> None:
        """End at once whatever still runs."""
        for process in self.processes:
            process.kill()
            process.wait()


@contextmanager
def start_workers(count: int, lane: str, url: str, log_dir: Path) -> Iterator[Workers]:
    """``count`` workers of one lane; none of them outlives the block."""
    logs = [log_dir / f"worker-{number}.log" for number in range(count)]
    workers = Workers([], logs)
    try:
        for log in logs:
            workers.processes.append(_start(lane, url, log))
        yield workers
    finally:
        try:
            workers.end()
        finally:  # a second Ctrl-C while they finish
            workers.kill()


def _start(lane: str, url: str, log: Path) -> subprocess.Popen[bytes]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SECATEUR_")}
    with log.open("wb") as output:
        return subprocess.Popen(
            # -P: a folder named `service` where the demo is run must not be taken for ours.
            [sys.executable, "-P", "-m", "service.cli", "worker", "--lane", lane, "--workers", "1"],
            env=environ | {"SECATEUR_REDIS_URL": url, "SECATEUR_LOG": "json"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the demo, which then ends its workers in order
        )


def _wait(process: subprocess.Popen[bytes], deadline: float) -> Iterator[str]:
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        yield f"worker {process.pid} did not end within {END_WITHIN_S:.0f} s of SIGTERM and was killed"
    else:
        if process.returncode:
            yield f"worker {process.pid} ended with code {process.returncode}"


def _last_lines(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:]) or "it said nothing"

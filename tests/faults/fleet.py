"""A fleet of test workers: keeps their number, starts a new one for every dead one, and knows why each died."""

import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from service.keys import GROUP
from tests.faults.points import DIED_AT_POINT, DIED_OF_POISON, Arms
from tests.faults.traffic import KEYS
from tests.integration.workers import Process

EXPECTED_CODES: Final = {
    DIED_AT_POINT: "point",
    DIED_OF_POISON: "poison",
    -signal.SIGALRM: "deadline",
    -signal.SIGKILL: "killed",
    -signal.SIGTERM: "stopped",  # asked before it had begun
    0: "stopped",
}
START_S: Final = 8.0
SETTINGS: Final = {
    "batch_count": "16",
    "block_ms": "200",
    "log_level": "warning",
    "grace_s": "5",
    "deadline_s": "1",
    "memory_mb": "1024",
    "blob_above_bytes": "3000",  # the longer results
}


class Fleet:
    """Workers by process id; `tend` is called often and does what is due."""

    def __init__(self, url: str, directory: Path, size: int, *, mutant: str = "", **settings: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.arms = Arms(directory / "arms")
        self.deaths: Counter[str] = Counter()
        self.strange: list[int] = []
        self.paused: set[int] = set()
        self.log = directory / "workers.log"
        self._command = [sys.executable, "-m", "tests.faults.worker", str(directory / "arms"), mutant]
        self._url = url
        self._started: dict[int, float] = {}
        self._settings = SETTINGS | settings
        self._workers = [self._start() for _ in range(size)]

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()

    @property
    def pids(self) -> list[int]:
        """The workers that are running and not paused."""
        return [one.pid for one in self._workers if not one.has_ended and one.pid not in self.paused]

    def tend(self) -> dict[int, str]:
        """Start a new worker for each that has died; who died, and of what."""
        dead = {}
        for place, worker in enumerate(self._workers):
            if worker.has_ended:
                dead[worker.pid] = self._bury(worker)
                self._workers[place] = self._start()
        return dead

    def kill(self, pid: int) -> None:
        """End a worker at once."""
        self._find(pid).kill()

    def send(self, pid: int, number: int) -> None:
        """Send a signal to a worker, if it still runs."""
        worker = self._find(pid)
        if not worker.has_ended:
            worker.send(number)

    def _find(self, pid: int) -> Process:
        return next(worker for worker in self._workers if worker.pid == pid)

    def _bury(self, worker: Process) -> str:
        code = worker.wait()
        cause = EXPECTED_CODES.get(code, "strange")
        if code == 1 and time.monotonic() - self._started.pop(worker.pid) < START_S:
            cause = "start"  # the server went away between two looks; a supervisor starts it again, as we do
        self.paused.discard(worker.pid)
        self.arms.disarm(worker.pid)
        self.deaths[cause] += 1
        if cause == "strange":
            self.strange.append(code)
        return cause

    def _start(self) -> Process:
        worker = Process(self._command, self._url, self.log, **self._settings)
        self._started[worker.pid] = time.monotonic()
        return worker


def _names(client: Any, pid: int) -> list[bytes]:
    consumers = client.xinfo_consumers(KEYS.snapshots, GROUP)
    return [one["name"] for one in consumers if f"-{pid}-".encode() in one["name"]]


def is_reading(client: Any, pid: int) -> bool:
    """Whether a worker has begun its work."""
    return bool(client.exists(KEYS.snapshots) and client.xinfo_groups(KEYS.snapshots) and _names(client, pid))


def held_by(client: Any, pid: int) -> set[bytes]:
    """The entries that are pending under a worker."""
    return {
        row["message_id"]
        for name in _names(client, pid)
        for row in client.xpending_range(KEYS.snapshots, GROUP, "-", "+", 1000, consumername=name)
    }


def still_pending(client: Any, ids: set[bytes]) -> set[bytes]:
    """Which of these entries nobody has settled."""
    rows = client.xpending_range(KEYS.snapshots, GROUP, min(ids, key=_order), max(ids, key=_order), 10_000)
    return ids & {row["message_id"] for row in rows}


def _order(entry_id: bytes) -> tuple[int, int]:
    time, _, number = entry_id.partition(b"-")
    return int(time), int(number)

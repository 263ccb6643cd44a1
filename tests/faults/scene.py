"""A scene: a server, workers and a producer at work, for a test that does one thing to them and looks."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from redis.exceptions import RedisError

from tests.faults.check import Findings, judge, read_outcomes
from tests.faults.fleet import Fleet
from tests.faults.server import Server
from tests.faults.traffic import KEYS, Producer, Sent, snapshots

PATIENCE_S: Final = 60.0
ENDLESS: Final = 1_000_000


@dataclass
class Scene:
    """What a test has in its hands."""

    server: Server
    fleet: Fleet
    producer: Producer
    client: Any
    fates: dict[str, str] = field(default_factory=dict)
    resends: int = 0

    def settled(self) -> int:
        """Entries settled so far; 0 while the server is away."""
        try:
            return int(self.client.xinfo_stream(KEYS.metrics)["entries-added"])
        except (RedisError, OSError):
            return 0

    def unsettled(self) -> int:
        """Entries that wait for their outcome; -1 while the server is away."""
        try:
            return int(sum(self.client.xlen(stream) for stream in KEYS.inputs))
        except (RedisError, OSError):
            return -1

    def has_come(self, is_true: Callable[[], object], within_s: float) -> bool:
        """Whether it becomes true in time, while dead workers are replaced."""
        deadline = time.monotonic() + within_s
        while not is_true():
            self.fleet.tend()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    def wait_until(self, is_true: Callable[[], object], what: str) -> float:
        """Wait, while dead workers are replaced; seconds it took."""
        began = time.monotonic()
        assert self.has_come(is_true, PATIENCE_S), f"never happened: {what}"
        return time.monotonic() - began

    def progress(self, entries: int = 20) -> float:
        """Wait until more entries are settled; seconds it took."""
        goal = self.settled() + entries
        return self.wait_until(lambda: self.settled() >= goal, f"{entries} more entries settled")

    def finish(self) -> Findings:
        """Let all that was sent come to its end, and judge it."""
        self._close_producer()
        self.wait_until(lambda: self.unsettled() == 0, "every entry settled")
        return judge(self.client, read_outcomes(self.client), self.fates, self.resends)

    def produce(self, traffic: Iterator[Sent]) -> None:
        """Send more, after what is being sent now."""
        self._close_producer()
        self.producer = Producer(self.server, traffic, 0)
        self.producer.start()

    def forget(self) -> None:
        """Leave out of account what was sent so far."""
        self._close_producer()
        self.fates, self.resends = {}, 0

    def _close_producer(self) -> None:
        self.producer.allowed = math.inf
        self.producer.finish()
        self.fates |= self.producer.fates
        self.resends += self.producer.resends
        self.producer.fates, self.producer.sends = {}, Counter()


@contextmanager
def playing(
    server: Server,
    directory: Path,
    seed: int,
    *,
    count: int = ENDLESS,
    workers: int = 2,
    replicas: int = 0,
    **settings: str,
) -> Iterator[Scene]:
    """Workers and a producer on a server, until the block ends."""
    traffic = snapshots(seed, count)
    with Fleet(server.url, directory, workers, **settings) as fleet, server.client() as client:
        producer = Producer(server, traffic, seed, replicas=replicas)
        producer.start()
        scene = Scene(server, fleet, producer, client)
        try:
            yield scene
        finally:
            scene.producer.stop()

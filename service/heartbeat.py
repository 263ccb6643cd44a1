"""Heartbeat: keeps the entries of a long batch from being taken for a dead worker's.

It beats from a thread and over a connection of its own, since pruning keeps the event loop from turning. A snapshot
past its deadline ends the process, and with it the heartbeat.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from msgspec import Struct
from redis import Redis
from redis.exceptions import RedisError

from service.keys import GROUP
from service.script import Script
from service.settle import Entry

BEATS: Final = 3  # within the time after which an entry is claimed


class Hold(Struct, frozen=True):
    """Entries of one read, and since when they are held."""

    stream: str
    ids: tuple[str, ...]
    since: float


class Heartbeat:
    """Renews what is held longer than a beat; what another worker has taken over meanwhile is left to it."""

    def __init__(self, client: Redis, consumer: str, claim_after_ms: int) -> None:
        self._client = client
        self._consumer = consumer
        self._period_s = claim_after_ms / 1000 / BEATS
        self._script = Script("renew")
        self._holds: dict[int, Hold] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Beat no more; a beat under way is not waited for."""
        self._is_over.set()

    @contextmanager
    def holding(self, entries: list[Entry]) -> Iterator[None]:
        """Hold these entries of one stream until the block ends."""
        hold = Hold(entries[0].stream, tuple(entry.id for entry in entries), time.monotonic())
        self._holds[id(hold)] = hold
        try:
            yield
        finally:
            del self._holds[id(hold)]

    def _beat(self) -> None:
        while not self._is_over.wait(self._period_s):
            due = time.monotonic() - self._period_s / 2
            for hold in list(self._holds.values()):
                if hold.since < due:
                    # The reader meets the same fault and reports it; a beat that is missed costs a claim at worst.
                    with suppress(RedisError, OSError):
                        self.renew(hold)

    def renew(self, hold: Hold) -> int:
        """Count as touched now whatever this consumer still has of a hold; how many that were."""
        return int(self._script.call_blocking(self._client, [hold.stream], [GROUP, self._consumer, *hold.ids]))

"""Reaper: takes over entries of dead workers and has each tried alone, so a killer is told from its batch-mates."""

import asyncio
import random
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError
from structlog.typing import FilteringBoundLogger

from service.counters import Counters
from service.health import Health
from service.keys import GROUP, Keys
from service.lane import retire
from service.reader import Consume
from service.script import Script
from service.settings import Settings
from service.settle import Entry, is_missing_group

MOST_CLAIMED: Final = 8  # the last of a claim waits for the others while its idle time runs
MOST_CLAIMS: Final = 64  # of one sweep; each looks at 80 pending entries at most, and the next sweep goes on from there
PERIOD: Final = (0.35, 0.6)  # of the claim time: recovery within twice that time, and workers out of step
START: Final = b"0-0"


class Reaper:
    """Claims for one consumer; attempts at a suspect are counted before they are made, never by deliveries."""

    def __init__(
        self,
        client: Redis,
        keys: Keys,
        consumer: str,
        settings: Settings,
        health: Health,
        counters: Counters,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client
        self._keys = keys
        self._consumer = consumer
        self._claim_after_ms = settings.claim_after_ms
        self._metrics_kept = settings.metrics_kept
        self._health = health
        self._counters = counters
        self._log = log
        self._scripts = {name: Script(name) for name in ("claim", "attempt", "retire")}
        self._cursors = dict.fromkeys(keys.inputs, START)

    async def run(self, consume: Consume) -> None:
        """Sweep at a jittered period until cancelled."""
        while not self._health.is_draining:
            try:
                for stream in self._keys.inputs:
                    await self._sweep(stream, consume)
                await retire(self._client, self._keys, self._scripts["retire"])
            except (RedisError, OSError) as error:
                # The reader sees the same fault and says what is to be said; a lost group is its to create.
                if not is_missing_group(error):
                    self._log.warning("reaper_delayed", error=type(error).__name__)
            await asyncio.sleep(self._claim_after_ms / 1000 * random.uniform(*PERIOD))

    async def _sweep(self, stream: str, consume: Consume) -> None:
        for _ in range(MOST_CLAIMS):
            self._cursors[stream], ids, vanished = await self._claim(stream, self._cursors[stream])
            self._report_vanished(stream, vanished)
            self._counters.read.labels("claimed").inc(len(ids))
            for entry_id in ids:
                if not self._health.is_draining:
                    await self._try(stream, entry_id.decode(), consume)
            if self._cursors[stream] == START or self._health.is_draining:
                return

    async def _claim(self, stream: str, cursor: bytes) -> tuple[bytes, list[bytes], list[bytes]]:
        """The next cursor, what was claimed, and what was deleted by somebody while it was pending."""
        names = [stream, self._keys.metrics, self._keys.attempts]
        limits = [self._claim_after_ms, cursor, MOST_CLAIMED, self._metrics_kept]
        reply = await self._scripts["claim"].call(self._client, names, [GROUP, self._consumer, *limits])
        return reply[0], reply[1], reply[2]

    async def _try(self, stream: str, entry_id: str, consume: Consume) -> None:
        reply: Any = await self._scripts["attempt"].call(
            self._client, [stream, self._keys.attempts], [GROUP, entry_id, self._consumer, 1]
        )
        if reply:
            await consume(stream, [Entry(stream, entry_id, reply[1], attempts=reply[0])])

    def _report_vanished(self, stream: str, vanished: list[bytes]) -> None:
        if vanished:
            self._counters.vanished.inc(len(vanished))
            ids = b",".join(vanished).decode()
            self._log.critical("entries_vanished", stream=stream, count=len(vanished), detail=ids)

"""Reaper: takes over entries of dead workers and runs each alone, so that a killer is told from its batch-mates."""

import asyncio
import random
from typing import Final

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError
from structlog.typing import FilteringBoundLogger

from service.counters import Counters
from service.health import Health
from service.keys import GROUP, Keys
from service.lane import retire
from service.reader import BatchSize, Consume, read_entries
from service.script import Script
from service.settings import Settings
from service.settle import Entry, is_missing_group

MOST_CLAIMED: Final = 8  # the last of a claim waits for the others while its idle time runs
PERIOD: Final = (0.35, 0.6)  # of the claim time: recovery within twice that time, and workers out of step


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
        self._size = BatchSize(min(MOST_CLAIMED, settings.batch_count), settings.batch_bytes)
        self._health = health
        self._counters = counters
        self._log = log
        self._attempt = Script("attempt")
        self._retire = Script("retire")

    async def run(self, consume: Consume) -> None:
        """Sweep at a jittered period until cancelled."""
        while True:
            try:
                for stream in self._keys.inputs:
                    await self._sweep(stream, consume)
                await retire(self._client, self._keys, self._retire)
            except (RedisError, OSError) as error:
                # The reader sees the same fault and says what is to be said; a lost group is its to create.
                if not is_missing_group(error):
                    self._log.warning("reaper_delayed", error=type(error).__name__)
            await asyncio.sleep(self._claim_after_ms / 1000 * random.uniform(*PERIOD))

    async def _sweep(self, stream: str, consume: Consume) -> None:
        cursor = b"0-0"
        while True:
            cursor, rows, deleted = await self._claim(stream, cursor)
            self._report_vanished(stream, deleted)
            suspects = read_entries(stream, rows)
            if suspects:
                self._size.saw(suspects)
                self._counters.read.labels("claimed").inc(len(suspects))
            for suspect in suspects:
                if not self._health.is_draining:
                    await self._run_alone(suspect, consume)
            if cursor == b"0-0" or self._health.is_draining:
                return

    async def _claim(self, stream: str, cursor: bytes) -> tuple[bytes, list[list[bytes]], list[bytes]]:
        reply = await self._client.xautoclaim(
            stream, GROUP, self._consumer, self._claim_after_ms, start_id=cursor, count=self._size.count
        )
        next_cursor, rows, deleted = reply
        return next_cursor, rows, deleted

    async def _run_alone(self, suspect: Entry, consume: Consume) -> None:
        keys = [suspect.stream, self._keys.attempts]
        attempts = await self._attempt.call(self._client, keys, [GROUP, suspect.id, self._consumer])
        if attempts:
            await consume(suspect.stream, [msgspec.structs.replace(suspect, attempts=attempts)])

    def _report_vanished(self, stream: str, deleted: list[bytes]) -> None:
        if deleted:
            self._counters.vanished.inc(len(deleted))
            ids = b",".join(deleted).decode()
            self._log.critical("entries_vanished", stream=stream, count=len(deleted), detail=ids)

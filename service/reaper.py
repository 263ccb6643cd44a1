"""Reaper: takes over entries of dead workers and has each tried alone, so a killer is told from its batch-mates."""

import asyncio
import random
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError
from structlog.typing import FilteringBoundLogger

from service.counters import Counters
from service.health import Health
from service.isolate import Cell, CellUnavailable
from service.keys import GROUP, Keys
from service.lane import retire
from service.reader import Consume
from service.script import Script
from service.settings import Settings
from service.settle import is_missing_group
from service.settlement import Entry

MOST_SUSPECTS: Final = 100  # of one look, which costs the server one walk through what is pending
MOST_LOOKS: Final = 10  # of one sweep
PERIOD: Final = (0.35, 0.6)  # of the claim time: recovery within twice that time, and workers out of step


class Reaper:
    """Claims for one consumer; attempts at a suspect are counted before they are made, never by deliveries."""

    def __init__(
        self,
        client: Redis,
        keys: Keys,
        consumer: str,
        settings: Settings,
        cell: Cell,
        health: Health,
        counters: Counters,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client
        self._keys = keys
        self._consumer = consumer
        self._claim_after_ms = settings.claim_after_ms
        self._metrics_kept = settings.metrics_kept
        self._cell = cell
        self._health = health
        self._counters = counters
        self._log = log
        self._claim_script = Script("claim")
        self._retire_script = Script("retire")

    async def run(self, consume: Consume) -> None:
        """Sweep at a jittered period until cancelled."""
        while not self._health.is_draining:
            try:
                for stream in self._keys.inputs:
                    await self._sweep(stream, consume)
                await retire(self._client, self._keys, self._retire_script)
            except CellUnavailable as error:
                self._log.error("cell_unavailable", error=str(error))
            except (RedisError, OSError) as error:
                # The reader sees the same fault and says what is to be said; a lost group is its to create.
                if not is_missing_group(error):
                    self._log.warning("reaper_delayed", error=type(error).__name__)
            await asyncio.sleep(self._claim_after_ms / 1000 * random.uniform(*PERIOD))

    async def _sweep(self, stream: str, consume: Consume) -> None:
        for _ in range(MOST_LOOKS):
            untried, tried = await self._find_suspects(stream)
            # Whoever survived an attempt is settled; what is tried again may take its time, and only its kind waits.
            suspects = untried or tried[:1]
            await self._try(stream, suspects, consume)
            if not suspects or self._health.is_draining:
                return

    async def _try(self, stream: str, suspects: list[str], consume: Consume) -> None:
        self._health.is_reaping = bool(suspects)
        try:
            for entry_id in suspects:
                if self._health.is_draining:
                    return
                await self._cell.start()
                self._health.has_suspect()
                suspect = await self._claim(stream, entry_id)
                if suspect:
                    await consume(stream, [suspect])
        finally:
            self._health.is_reaping = False

    async def _find_suspects(self, stream: str) -> tuple[list[str], list[str]]:
        """Entries that nobody has touched for the claim time, untried or tried; each is claimed when its turn comes."""
        idle_ms = self._claim_after_ms
        rows: Any = await self._client.xpending_range(stream, GROUP, "-", "+", MOST_SUSPECTS, idle=idle_ms)
        ids = [row["message_id"].decode() for row in rows]
        random.shuffle(ids)  # or every worker would wait for the same one
        names = [f"{stream} {entry_id}" for entry_id in ids]
        attempts = await self._client.hmget(self._keys.attempts, names) if names else []
        tried = [entry_id for entry_id, begun in zip(ids, attempts, strict=True) if int(begun or 0)]
        return [entry_id for entry_id in ids if entry_id not in tried], tried

    async def _claim(self, stream: str, entry_id: str) -> Entry | None:
        """The entry with the attempt at it counted, unless another worker was faster or it has vanished."""
        names = [stream, self._keys.metrics, self._keys.attempts]
        values = [GROUP, entry_id, self._consumer, self._claim_after_ms, self._metrics_kept]
        reply: Any = await self._claim_script.call(self._client, names, values)
        if not reply:
            return None
        if not reply[0]:
            self._counters.vanished.inc()
            self._log.critical("entry_vanished", stream=stream, entry_id=entry_id)
            return None
        self._counters.read.labels("claimed").inc()
        return Entry(stream, entry_id, reply[1], attempts=reply[0])

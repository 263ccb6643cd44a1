"""Handler: what a worker does with the entries of one read: prune each, settle them together, say what came of it."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError
from structlog.typing import FilteringBoundLogger

from service.counters import Counters
from service.entry import describe_fault
from service.health import Health
from service.keys import Keys
from service.observe import log_snapshot
from service.settle import Entry, Settlement, Settler, Verdict

SETTLE_AFTER_S: Final = 0.05  # so the event loop turns, and what is done does not wait for what is slow


class Handler:
    """Handles entries in the order they came; when a stop begins, the rest stays pending and is handed back."""

    def __init__(
        self,
        client: Redis,
        keys: Keys,
        prune: Callable[[Entry], Settlement],
        settler: Settler,
        health: Health,
        counters: Counters,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client
        self._keys = keys
        self._prune = prune
        self._settler = settler
        self._health = health
        self._counters = counters
        self._log = log

    async def handle(self, entries: list[Entry]) -> None:
        """Settle every entry; a fault of ours leaves the rest pending for the reaper and the worker goes on."""
        try:
            await self._handle(entries)
        except Exception as error:
            self._log.error("batch_failed", count=len(entries), error=describe_fault(error))

    async def _handle(self, entries: list[Entry]) -> None:
        done: list[Settlement] = []
        settle_at = time.monotonic() + SETTLE_AFTER_S
        for entry in entries:
            if self._health.is_draining:
                await self._forgive(entry)
                break
            done.append(self._prune(entry))
            if time.monotonic() > settle_at:
                await self._settle(done)
                done, settle_at = [], time.monotonic() + SETTLE_AFTER_S
        await self._settle(done)

    async def _settle(self, settlements: list[Settlement]) -> None:
        if not settlements:
            return
        verdicts = await self._settler.settle(settlements)
        for settlement, verdict in zip(settlements, verdicts, strict=True):
            self._counters.add(settlement, verdict)
            log_snapshot(self._log, settlement, verdict)
            if verdict is Verdict.KEPT:
                await self._forgive(settlement.entry)

    async def _forgive(self, entry: Entry) -> None:
        # The attempt was not made, or came back and could not be settled: either way the entry is no killer.
        if entry.attempts:
            with suppress(RedisError, OSError):
                await self._client.hdel(self._keys.attempts, f"{entry.stream} {entry.id}")

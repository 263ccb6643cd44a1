"""Reader: takes new entries, live before batch, bounded by count and bytes, and outlives whatever the server does."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError
from structlog.typing import FilteringBoundLogger

from service.counters import Counters
from service.health import Health
from service.keys import GROUP, Keys
from service.lane import create_groups
from service.settings import Settings
from service.settle import UNREACHABLE, Entry, growing_delays, is_missing_group

FIRST_COUNT: Final = 4  # until sizes are known
PAUSE_S: Final = 0.02
MOST_PAUSES: Final = 10

Consume = Callable[[str, list[Entry]], Awaitable[None]]


class BatchSize:
    """How many entries to ask for: what the bytes allow by the sizes seen; falls at once, grows by doubling."""

    def __init__(self, most_count: int, most_bytes: int) -> None:
        self._most_count = most_count
        self._most_bytes = most_bytes
        self.count = min(FIRST_COUNT, most_count)

    def saw(self, entries: list[Entry]) -> None:
        """Learn from a read."""
        read_bytes = sum(sum(map(len, entry.fields)) for entry in entries)
        fitting = self._most_bytes * len(entries) // max(1, read_bytes)
        self.count = max(1, min(fitting, self.count * 2, self._most_count))


class Reader:
    """Reads for one consumer and passes on what it got, one stream at a time."""

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
        self._block_ms = settings.block_ms
        self._health = health
        self._counters = counters
        self._log = log
        self._sizes = {stream: BatchSize(settings.batch_count, settings.batch_bytes) for stream in keys.inputs}
        self._delays = growing_delays()
        self._is_away = False

    async def feed(self, consume: Consume) -> None:
        """Read once and pass on; a server that is away or has lost its groups costs time, never the loop."""
        await self._give_way()
        try:
            batches = await self._read()
        except MemoryError as error:
            # What was read stays pending and is taken over entry by entry; the next read asks for one.
            for size in self._sizes.values():
                size.count = 1
            await self._recover(error)
            return
        except (RedisError, OSError) as error:
            await self._recover(error)
            return
        self._is_back()
        for stream, entries in batches:
            self._sizes[stream].saw(entries)
            self._counters.read.labels("new").inc(len(entries))
            await consume(stream, entries)

    async def _give_way(self) -> None:
        # What a dead worker left is older than anything new, but must not hold it up for long.
        for _ in range(MOST_PAUSES):
            if not self._health.is_recovering:
                return
            await asyncio.sleep(PAUSE_S)

    async def _read(self) -> list[tuple[str, list[Entry]]]:
        live, batch = self._keys.inputs
        count = self._sizes[live].count
        found = await self._ask([live], count, block_ms=None)
        if found:
            return found
        # Both may be ready by now: the reply has them in the order asked, so live traffic still goes first.
        return await self._ask([live, batch], min(count, self._sizes[batch].count), self._block_ms)

    async def _ask(self, streams: list[str], count: int, block_ms: int | None) -> list[tuple[str, list[Entry]]]:
        asked: dict[Any, Any] = dict.fromkeys(streams, ">")
        reply = await self._client.xreadgroup(GROUP, self._consumer, asked, count=count, block=block_ms)
        return [(stream.decode(), read_entries(stream.decode(), rows)) for stream, rows in _pairs(reply)]

    async def _recover(self, error: Exception) -> None:
        self._counters.redis_errors.labels(type(error).__name__).inc()
        if is_missing_group(error):
            await self.recreate_groups()
            return
        if not self._is_away:
            # Redis errors can quote arguments; only their kind is safe to repeat.
            self._log.error("redis_unreachable", error=type(error).__name__)
            self._is_away = True
        await asyncio.sleep(next(self._delays))

    async def recreate_groups(self) -> None:
        """Create the groups again after FLUSHALL or the like, from the oldest entry on, and say so loudly."""
        self._counters.groups_lost.inc()
        self._log.critical("group_lost", detail="streams deleted or flushed? reading from the oldest entry on")
        try:
            await create_groups(self._client, self._keys)
        except (*UNREACHABLE, RedisError) as error:
            self._log.error("group_not_created", error=type(error).__name__)
            await asyncio.sleep(next(self._delays))

    def _is_back(self) -> None:
        self._health.has_heard()
        if self._is_away:
            self._log.info("redis_back")
            self._is_away = False
        self._delays = growing_delays()


def read_entries(stream: str, rows: Iterable[Any]) -> list[Entry]:
    """The entries of a raw reply; one that was deleted meanwhile has no fields and is left out."""
    return [Entry(stream, entry_id.decode(), fields) for entry_id, fields in rows if fields]


def _pairs(reply: Any) -> Iterable[tuple[bytes, list[Any]]]:
    if not reply:
        return []
    return reply.items() if isinstance(reply, dict) else reply  # RESP3 or RESP2

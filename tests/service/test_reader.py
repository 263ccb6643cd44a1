"""Reader: live before batch, batches bounded by count and bytes, a lost group made again."""

import asyncio
import time
from typing import Any

import msgspec
import pytest

from service import lane as lane_module
from service.counters import Counters
from service.health import Health
from service.keys import GROUP
from service.lane import connect
from service.observe import open_log
from service.reader import BatchSize, Reader
from service.settings import SOCKET_TIMEOUT_S, load_settings
from service.settle import Entry
from tests.service.conftest import Lane
from tests.service.test_settle import LossyProxy

SETTINGS = load_settings({"SECATEUR_BLOCK_MS": "50", "SECATEUR_BATCH_COUNT": "4"})


class Feed:
    """A reader and what it passes on."""

    def __init__(self, lane: Lane, client: Any = None, block_ms: int = SETTINGS.block_ms) -> None:
        self.health, self.counters = Health(), Counters()
        log = open_log("json", "error")
        settings = msgspec.structs.replace(SETTINGS, block_ms=block_ms)
        self._reader = Reader(client or lane.client, lane.keys, "tester", settings, self.health, self.counters, log)
        self.batches: list[tuple[str, int]] = []

    async def once(self) -> None:
        await self._reader.feed(self._consume)

    async def _consume(self, stream: str, entries: list[Entry]) -> None:
        self.batches.append((stream, len(entries)))


def sized(count: int, each: int) -> list[Entry]:
    return [Entry("s", "1-1", [b"__data__", b"x" * each])] * count


async def test_live_entries_are_read_before_batch_entries(lane: Lane) -> None:
    feed = Feed(lane)
    for _ in range(6):
        await lane.add(lane.keys.batch, __data__="{}")
    for _ in range(6):
        await lane.add(__data__="{}")

    for _ in range(4):
        await feed.once()

    live, batch = lane.keys.inputs
    assert feed.batches == [(live, 4), (live, 2), (batch, 4), (batch, 2)]


async def test_an_empty_stream_costs_a_wait_and_counts_as_a_read(lane: Lane) -> None:
    feed = Feed(lane)
    assert not feed.health.is_ready

    await feed.once()

    assert feed.batches == []
    assert feed.health.is_ready


async def test_a_flushed_server_gets_its_groups_back_and_nothing_added_later_is_missed(lane: Lane) -> None:
    feed = Feed(lane)
    await lane.client.flushall()
    await lane.add(__data__="{}")

    await feed.once()
    await feed.once()

    assert feed.batches == [(lane.keys.snapshots, 1)]
    assert feed.counters.groups_lost._value.get() == 1


async def test_a_stream_of_the_wrong_type_is_waited_out(lane: Lane) -> None:
    feed = Feed(lane)
    await lane.client.flushall()
    await lane.client.set(lane.keys.snapshots, "in the way")
    for _ in range(3):
        await feed.once()
    assert feed.batches == []

    await lane.client.delete(lane.keys.snapshots)
    await lane.add(__data__="{}")
    for _ in range(2):
        await feed.once()

    assert feed.batches == [(lane.keys.snapshots, 1)]


async def test_a_read_that_the_server_breaks_off_is_begun_again(lane: Lane, redis_url: str) -> None:
    async with connect(redis_url) as client:
        feed = Feed(lane, client, block_ms=5_000)
        number = await client.client_id()
        reading = asyncio.create_task(feed.once())
        while not await lane.client.execute_command("CLIENT", "UNBLOCK", number, "ERROR"):  # as a demotion does
            assert not reading.done()
        await reading
        await lane.add(__data__="{}")
        await feed.once()

    assert feed.batches == [(lane.keys.snapshots, 1)]
    assert feed.counters.redis_errors.labels("ResponseError")._value.get() == 1


async def test_a_connection_that_only_looks_alive_is_given_up_and_its_entry_can_be_claimed(
    lane: Lane, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_module, "SOCKET_TIMEOUT_S", 0.3)
    async with LossyProxy(redis_url) as proxy, connect(proxy.url) as client:
        feed = Feed(lane, client)
        await feed.once()
        proxy.is_silent = True
        await lane.add(__data__="{}")
        began = time.monotonic()
        await feed.once()
        took = time.monotonic() - began
        proxy.is_silent = False
        await lane.add(__data__="{}")
        await feed.once()

    (held, _) = await lane.client.xpending_range(lane.keys.snapshots, GROUP, "-", "+", 10)
    assert took < 2
    assert proxy.lost == 1
    assert feed.batches == [(lane.keys.snapshots, 1)]
    assert held["consumer"] == b"tester"  # the reaper's, once its time has come
    assert SOCKET_TIMEOUT_S <= 10


def test_a_batch_grows_by_doubling_up_to_its_count() -> None:
    size = BatchSize(64, 2**20)

    counts = []
    for _ in range(6):
        size.saw(sized(size.count, 100))
        counts.append(size.count)

    assert counts == [8, 16, 32, 64, 64, 64]


def test_a_batch_of_large_entries_shrinks_at_once_and_never_below_one() -> None:
    size = BatchSize(64, 2**20)
    for _ in range(5):
        size.saw(sized(size.count, 100))

    size.saw(sized(64, 2**18))
    assert size.count == 3

    size.saw(sized(3, 2**24))
    assert size.count == 1


@pytest.mark.parametrize("most", [1, 3])
def test_a_count_below_the_first_guess_is_kept(most: int) -> None:
    assert BatchSize(most, 2**20).count == most

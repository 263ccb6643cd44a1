"""Reaper and heartbeat: what is claimed, what is counted, what is left to its worker."""

import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from redis.exceptions import ResponseError

from service.counters import Counters
from service.health import Health
from service.heartbeat import Heartbeat, Hold
from service.isolate import Cell
from service.keys import GROUP
from service.lane import connect_blocking, hand_back, make_claimable, retire
from service.observe import open_log
from service.reaper import MOST_SUSPECTS, Reaper
from service.script import Script
from service.settle import Entry
from tests.service.conftest import Lane

HELD = "dead-worker"


class Sweeps:
    """A reaper, one sweep at a time, and what it has tried."""

    def __init__(self, lane: Lane, claim_after_ms: int = 100) -> None:
        self.health, self.counters = Health(), Counters()
        settings = msgspec.structs.replace(lane.settings, claim_after_ms=claim_after_ms)
        log = open_log("json", "error")
        cell = Cell(lane.desk, 10, 1024, (sys.executable, "-m", "service.isolate_child"))
        self._reaper = Reaper(lane.client, lane.keys, "reaper", settings, cell, self.health, self.counters, log)
        self._cell = cell
        self._stream = lane.keys.snapshots
        self.tried: list[Entry] = []

    async def once(self) -> list[Entry]:
        self.tried = []
        try:
            await self._reaper._sweep(self._stream, self._consume)
        finally:
            await self._cell.close()
        return sorted(self.tried, key=lambda entry: entry.id)

    async def _consume(self, stream: str, entries: list[Entry]) -> None:
        (entry,) = entries  # each alone
        self.tried.append(entry)


async def hold(lane: Lane, count: int, *, is_idle: bool = True) -> list[str]:
    """Entries that a worker has read, long ago or just now."""
    for _ in range(count):
        await lane.add(__data__="{}", trace="t")
    reply = await lane.client.xreadgroup(GROUP, HELD, {lane.keys.snapshots: ">"}, count=count)
    ids = [entry_id.decode() for rows in reply.values() for entry_id, _ in rows]
    if is_idle:
        await make_claimable(lane.client, lane.keys.snapshots, HELD, ids)
    return ids


async def owners(lane: Lane) -> dict[str, str]:
    rows = await lane.client.xpending_range(lane.keys.snapshots, GROUP, "-", "+", 1000)
    return {row["message_id"].decode(): row["consumer"].decode() for row in rows}


async def test_every_entry_of_a_dead_worker_is_tried_alone_and_counted_first(lane: Lane) -> None:
    ids = await hold(lane, 5)

    tried = await Sweeps(lane).once()

    assert [entry.id for entry in tried] == sorted(ids)
    assert {entry.attempts for entry in tried} == {1}
    assert tried[0].fields == [b"__data__", b"{}", b"trace", b"t"]
    counted = await lane.client.hgetall(lane.keys.attempts)
    assert counted == {f"{lane.keys.snapshots} {entry_id}".encode(): b"1" for entry_id in ids}


async def test_a_suspect_that_was_tried_before_is_counted_on(lane: Lane) -> None:
    (entry_id,) = await hold(lane, 1)
    sweeps = Sweeps(lane)
    for attempt in (1, 2, 3):
        (tried,) = await sweeps.once()
        assert tried.attempts == attempt
        await make_claimable(lane.client, lane.keys.snapshots, "reaper", [entry_id])


async def test_what_a_worker_has_just_read_is_left_to_it(lane: Lane) -> None:
    await hold(lane, 2, is_idle=False)

    assert await Sweeps(lane, claim_after_ms=60_000).once() == []


async def test_nothing_is_begun_while_a_stop_is_under_way(lane: Lane) -> None:
    await hold(lane, 2)
    sweeps = Sweeps(lane)
    sweeps.health.is_draining = True

    assert await sweeps.once() == []
    assert not await lane.client.exists(lane.keys.attempts)


async def test_an_entry_deleted_while_pending_leaves_a_row_and_an_alarm(lane: Lane) -> None:
    gone, kept = await hold(lane, 2)
    await lane.client.xdel(lane.keys.snapshots, gone)
    sweeps = Sweeps(lane)

    tried = await sweeps.once()

    assert [entry.id for entry in tried] == [kept]
    assert sweeps.counters.vanished._value.get() == 1
    (row,) = await lane.rows()
    assert (row.status, row.entry_id, row.worker) == ("vanished", gone, "reaper")
    assert set(await owners(lane)) == {kept}


async def test_a_claim_writes_nothing_when_the_metrics_stream_is_of_the_wrong_type(lane: Lane) -> None:
    (gone,) = await hold(lane, 1)
    await lane.client.xdel(lane.keys.snapshots, gone)
    await lane.client.set(lane.keys.metrics, "in the way")

    with pytest.raises(ResponseError, match="BADTYPE"):
        await Sweeps(lane).once()
    assert set(await owners(lane)) == {gone}


async def test_more_suspects_than_one_look_shows_are_tried_all_the_same(lane: Lane) -> None:
    ids = await hold(lane, MOST_SUSPECTS + 3)

    tried = await Sweeps(lane, claim_after_ms=3_600_000).once()

    assert [entry.id for entry in tried] == sorted(ids)


async def claim(lane: Lane, entry_id: str, consumer: str, idle_ms: int = 100) -> Any:
    keys = [lane.keys.snapshots, lane.keys.metrics, lane.keys.attempts]
    return await Script("claim").call(lane.client, keys, [GROUP, entry_id, consumer, idle_ms, 0])


async def test_of_two_workers_that_see_a_suspect_one_gets_it(lane: Lane) -> None:
    (entry_id,) = await hold(lane, 1)

    assert (await claim(lane, entry_id, "first"))[0] == 1
    assert await claim(lane, entry_id, "second", idle_ms=60_000) is None
    assert await owners(lane) == {entry_id: "first"}
    assert await lane.client.hvals(lane.keys.attempts) == [b"1"]


async def test_an_attempt_can_be_taken_back_by_the_worker_that_made_it(lane: Lane) -> None:
    (entry_id,) = await hold(lane, 1)
    keys = [lane.keys.snapshots, lane.keys.attempts]
    for _ in range(2):
        await claim(lane, entry_id, "reaper", idle_ms=0)
    forgive = Script("forgive")

    assert await forgive.call(lane.client, keys, [GROUP, entry_id, "other"]) is None
    assert int(await forgive.call(lane.client, keys, [GROUP, entry_id, "reaper"])) == 1
    assert await forgive.call(lane.client, keys, [GROUP, entry_id, "reaper"]) == 0
    assert not await lane.client.exists(lane.keys.attempts)


async def test_what_is_handed_back_can_be_claimed_at_once(lane: Lane) -> None:
    ids = await hold(lane, 3, is_idle=False)

    assert await hand_back(lane.client, lane.keys, HELD) == 3
    assert [entry.id for entry in await Sweeps(lane, claim_after_ms=3_600_000).once()] == sorted(ids)


async def test_only_consumers_without_pending_entries_are_forgotten(lane: Lane) -> None:
    await hold(lane, 1)
    await lane.client.xgroup_createconsumer(lane.keys.snapshots, GROUP, "idle")
    await lane.client.xgroup_createconsumer(lane.keys.snapshots, GROUP, "leaving")
    script = Script("retire")

    await retire(lane.client, lane.keys, script, "leaving")
    assert await names(lane) == {HELD, "idle"}

    await lane.client.evalsha(script.sha, 1, lane.keys.snapshots, GROUP, "", -1)  # everybody counts as silent
    assert await names(lane) == {HELD}
    assert len(await owners(lane)) == 1


async def names(lane: Lane) -> set[str]:
    return {one["name"].decode() for one in await lane.client.xinfo_consumers(lane.keys.snapshots, GROUP)}


@pytest.fixture
def heartbeat(lane: Lane, redis_url: str) -> Iterator[Heartbeat]:
    with connect_blocking(redis_url) as client:
        yield Heartbeat(client, HELD, claim_after_ms=300)


async def idle_ms(lane: Lane) -> list[int]:
    rows = await lane.client.xpending_range(lane.keys.snapshots, GROUP, "-", "+", 1000)
    return [row["time_since_delivered"] for row in rows]


async def test_a_beat_renews_what_is_held(lane: Lane, heartbeat: Heartbeat) -> None:
    ids = await hold(lane, 2)

    assert heartbeat.renew(Hold(lane.keys.snapshots, tuple(ids), 0)) == 2
    assert max(await idle_ms(lane)) < 60_000
    assert await Sweeps(lane, claim_after_ms=60_000).once() == []


async def test_a_beat_leaves_alone_what_was_settled_or_claimed_by_another(lane: Lane, heartbeat: Heartbeat) -> None:
    settled, claimed = await hold(lane, 2)
    await lane.client.xack(lane.keys.snapshots, GROUP, settled)
    await lane.client.xclaim(lane.keys.snapshots, GROUP, "other", 0, [claimed])

    assert heartbeat.renew(Hold(lane.keys.snapshots, (settled, claimed), 0)) == 0
    assert await owners(lane) == {claimed: "other"}


async def test_a_beat_does_not_take_a_deleted_entry_from_its_worker(lane: Lane, heartbeat: Heartbeat) -> None:
    (deleted,) = await hold(lane, 1)
    await lane.client.xdel(lane.keys.snapshots, deleted)

    assert heartbeat.renew(Hold(lane.keys.snapshots, (deleted,), 0)) == 0
    assert await owners(lane) == {deleted: HELD}


async def test_what_is_held_longer_than_a_beat_is_renewed_until_it_is_let_go(lane: Lane, heartbeat: Heartbeat) -> None:
    (entry_id,) = await hold(lane, 1)
    renewed: list[Hold] = []
    heartbeat.renew = lambda hold: renewed.append(hold) or 1  # type: ignore[method-assign, func-returns-value]
    heartbeat.start()
    with heartbeat.holding([Entry(lane.keys.snapshots, entry_id, [])]):
        while len(renewed) < 2:
            await lane.client.ping()
    heartbeat.stop()

    assert {hold.ids for hold in renewed} == {(entry_id,)}
    assert heartbeat._holds == {}

"""Admit: a snapshot is added once, however often it is sent, and a full lane turns producers away by name."""

import asyncio
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError, ResponseError

from contracts import Code, Refused
from service.admit import Admission, Admitted, Gate, Limits, read_reply
from service.entry import prune_entry
from service.fingerprint import fingerprint
from service.settings import load_settings
from service.settle import Verdict
from tests.service.conftest import Lane, snapshot


async def admit(lane: Lane, name: str, body: bytes = b"{}", limits: Limits | None = None, **fields: Any) -> Admitted:
    gate = Gate(lane.keys, limits or Limits())
    await gate.script.load(lane.client)
    admission = Admission(lane.keys.snapshots, name, body, **fields)
    try:
        return read_reply(await lane.client.execute_command(*gate.command(admission)))
    except ResponseError as error:
        return read_reply(error)


def test_the_limits_are_those_of_the_settings() -> None:
    settings = load_settings({})

    assert Limits() == Limits(settings.admit_entries, settings.admit_bytes, settings.marker_ttl_s)


async def test_a_snapshot_is_added_as_any_producer_would_add_it(lane: Lane) -> None:
    admitted = await admit(lane, "s-1", b'{"a":1}')

    assert admitted.is_new
    assert await lane.client.xrange(lane.keys.snapshots) == [(admitted.entry_id.encode(), {b"__data__": b'{"a":1}'})]


async def test_an_encoding_stands_beside_the_body(lane: Lane) -> None:
    await admit(lane, "s-1", b"...", encoding="zstd")

    ((_, fields),) = await lane.client.xrange(lane.keys.snapshots)
    assert fields == {b"__data__": b"...", b"enc": b"zstd"}


async def test_sending_again_adds_nothing_and_names_the_first_entry(lane: Lane) -> None:
    first = await admit(lane, "s-1")
    second = await admit(lane, "s-1")

    assert second == Admitted(first.entry_id, is_new=False)
    assert await lane.client.xlen(lane.keys.snapshots) == 1


@pytest.mark.parametrize("is_settled", [False, True])
async def test_an_id_that_stands_for_another_array_is_told(lane: Lane, is_settled: bool) -> None:
    body = b'{"conversation_id":"c","snapshot_id":"s-1","messages":[]}'
    first = await admit(lane, "s-1", body, fingerprint=fingerprint([]))
    if is_settled:
        await lane.settler.settle([prune_entry(entry, lane.desk) for entry in await lane.read()])

    same, other, nameless = [await admit(lane, "s-1", fingerprint=one) for one in (fingerprint([]), "0badf00d", "")]

    assert (same.is_new, same.is_other_array) == (nameless.is_new, nameless.is_other_array) == (False, False)
    assert (other.is_new, other.is_other_array, other.entry_id) == (False, True, same.entry_id)
    assert is_settled or same.entry_id == first.entry_id
    assert await lane.client.xlen(lane.keys.snapshots) == (not is_settled)


async def test_many_producers_of_one_snapshot_add_it_once(lane: Lane) -> None:
    admitted = await asyncio.gather(*(admit(lane, "s-1") for _ in range(50)))

    assert sum(one.is_new for one in admitted) == 1
    assert len({one.entry_id for one in admitted}) == 1


async def test_an_id_that_is_not_plain_is_recognised_too(lane: Lane) -> None:
    name = "c 1 {x} \u00fc" * 20

    assert [(await admit(lane, name)).is_new for _ in range(2)] == [True, False]
    assert await lane.client.xlen(lane.keys.snapshots) == 1


async def test_the_marker_goes_after_its_time(lane: Lane) -> None:
    await admit(lane, "s-1", remembered_s=5)
    await admit(lane, "s-2")

    assert 4_000 < await lane.client.pttl(lane.keys.admitted("s-1")) <= 5_000
    assert await lane.client.pttl(lane.keys.admitted("s-2")) > 80_000_000


async def test_a_settled_snapshot_is_known_even_without_its_admission(lane: Lane) -> None:
    assert await lane.settler.settle([await lane.take(snapshot(snapshot_id="s-1"))]) == [Verdict.OK]

    assert not (await admit(lane, "s-1")).is_new
    assert await lane.client.xlen(lane.keys.snapshots) == 0


async def test_a_dead_snapshot_may_be_mended_and_sent_under_its_own_id(lane: Lane) -> None:
    await admit(lane, "s-1", b'{"snapshot_id":"s-1","conversation_id":"c","messages":[],"policy":"no-such"}')
    (bad,) = await lane.read()
    assert await lane.settler.settle([prune_entry(bad, lane.desk)]) == [Verdict.DEAD]

    assert (await admit(lane, "s-1", b'{"snapshot_id":"s-1","conversation_id":"c","messages":[]}')).is_new
    (mended,) = await lane.read()
    assert await lane.settler.settle([prune_entry(mended, lane.desk)]) == [Verdict.OK]


async def test_a_full_input_refuses_by_entries(lane: Lane) -> None:
    limits = Limits(entries=2)
    for name in ("s-1", "s-2"):
        await admit(lane, name, limits=limits)

    with pytest.raises(Refused, match="2 entries, the limit is 2") as refused:
        await admit(lane, "s-3", limits=limits)

    assert refused.value.code is Code.LANE_FULL
    assert await lane.client.xlen(lane.keys.snapshots) == 2
    assert not await lane.client.exists(lane.keys.admitted("s-3"))


async def test_a_full_input_refuses_by_bytes(lane: Lane) -> None:
    limits = Limits(bytes=50_000)
    await admit(lane, "s-1", b"x" * 60_000, limits)

    with pytest.raises(Refused, match="bytes, the limit is 50000") as refused:
        await admit(lane, "s-2", limits=limits)

    assert refused.value.code is Code.LANE_FULL


async def test_a_full_input_still_knows_what_it_took(lane: Lane) -> None:
    limits = Limits(entries=1)
    first = await admit(lane, "s-1", limits=limits)

    assert await admit(lane, "s-1", limits=limits) == Admitted(first.entry_id, is_new=False)


async def test_settling_makes_room_again(lane: Lane) -> None:
    limits = Limits(entries=1, bytes=100_000)
    await admit(lane, "s-1", b"x" * 90_000, limits)
    (entry,) = await lane.read()
    await lane.settler.settle([prune_entry(entry, lane.desk)])

    assert (await admit(lane, "s-2", limits=limits)).is_new


async def test_no_limit_is_written_as_0(lane: Lane) -> None:
    for number in range(5):
        assert (await admit(lane, f"s-{number}", limits=Limits(entries=0, bytes=0))).is_new


@pytest.mark.parametrize("name", ["admitted:s-1", "done:s-1", "snapshots:batch"])
async def test_a_key_of_the_wrong_type_is_refused_before_anything_is_written(lane: Lane, name: str) -> None:
    await lane.client.delete(f"{{main}}:{name}")
    await lane.client.hset(f"{{main}}:{name}", "in", "the way")
    gate = Gate(lane.keys, Limits())
    await gate.script.load(lane.client)

    with pytest.raises(ResponseError, match=f"BADTYPE {{main}}:{name} is a hash"):
        await lane.client.execute_command(*gate.command(Admission(lane.keys.batch, "s-1", b"{}")))

    assert await lane.client.type(lane.keys.batch) in (b"hash", b"stream")
    assert not await lane.client.exists(lane.keys.admitted("s-1")) or name == "admitted:s-1"


async def test_a_server_without_memory_refuses_admission(lane: Lane) -> None:
    await lane.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(OutOfMemoryError):
            await admit(lane, "s-1")
    finally:
        await lane.client.config_set("maxmemory", 0)

    assert await lane.client.xlen(lane.keys.snapshots) == 0

"""Settle: every branch of the script, against a real server."""

import asyncio
import hashlib
import io
import json

import msgspec
import pytest
from redis.exceptions import OutOfMemoryError

from service.counters import Counters
from service.entry import prune_entry
from service.keys import GROUP
from service.lane import connect
from service.observe import log_snapshot, open_log
from service.settle import Settler, Verdict
from tests.service.conftest import Lane, snapshot


async def test_a_settled_entry_is_published_counted_acknowledged_and_deleted(lane: Lane) -> None:
    settlement = await lane.take(snapshot(snapshot_id="s-1", sequence=3))

    assert await lane.settler.settle([settlement]) == [Verdict.OK]

    (result,) = await lane.results()
    assert (result.snapshot_id, result.status, result.sequence) == ("s-1", "unchanged", 3)
    (row,) = await lane.rows()
    assert (row.snapshot_id, row.status, row.worker, row.messages_before) == ("s-1", "unchanged", "tester", 1)
    assert await lane.pending() == 0
    assert await lane.client.xlen(lane.keys.snapshots) == 0
    assert await lane.client.get(lane.keys.latest("c-1")) == b"3"
    assert 0 < await lane.client.pttl(lane.keys.done("s-1")) <= lane.settings.marker_ttl_s * 1000


async def test_settling_twice_acts_once(lane: Lane) -> None:
    settlement = await lane.take(snapshot())
    await lane.settler.settle([settlement])

    assert await lane.settler.settle([settlement]) == [Verdict.SETTLED]

    assert len(await lane.results()) == len(await lane.rows()) == 1


async def test_the_result_of_a_snapshot_with_an_inbox_goes_there_only(lane: Lane) -> None:
    await lane.settler.settle([await lane.take(snapshot(inbox="runner-7"))])

    assert len(await lane.results("runner-7")) == 1
    assert await lane.results() == []


async def test_a_resend_is_answered_without_messages(lane: Lane) -> None:
    first = await lane.take(snapshot(snapshot_id="s-1", metadata={"k": 1}))
    second = await lane.take(snapshot(snapshot_id="s-1", metadata={"k": 1}))

    verdicts = await lane.settler.settle([first, second])

    assert verdicts == [Verdict.OK, Verdict.DUPLICATE]
    original, answer = await lane.results()
    assert (answer.snapshot_id, answer.status, answer.reason) == ("s-1", "duplicate", ["already_settled"])
    assert not answer.messages
    assert answer.tokens.before == answer.tokens.after
    assert answer.metadata == original.metadata == msgspec.Raw(b'{"k": 1}')
    assert [row.status for row in await lane.rows()] == ["unchanged", "duplicate"]
    assert await lane.pending() == 0


async def test_an_id_that_stands_for_another_array_is_told_counted_and_logged(lane: Lane) -> None:
    first = await lane.take(snapshot(snapshot_id="s-1"))
    other = await lane.take(snapshot(snapshot_id="s-1", messages=[{"role": "user", "content": "CANARY"}]))
    same = await lane.take(snapshot(snapshot_id="s-1", inbox="somebody-else"))

    verdicts = await lane.settler.settle([first, other, same])

    assert verdicts == [Verdict.OK, Verdict.OTHER_ARRAY, Verdict.DUPLICATE]
    answer = (await lane.results())[1]
    assert (answer.status, answer.reason) == ("duplicate", ["already_settled", "other_array"])
    assert (await lane.rows())[1].reason == ["already_settled", "other_array"]
    counters, stream = Counters(), io.StringIO()
    for settlement, verdict in zip((first, other, same), verdicts, strict=True):
        counters.add(settlement, verdict)
        log_snapshot(open_log("json", "info", stream), settlement, verdict)
    assert counters.registry.get_sample_value("secateur_other_array_total") == 1
    assert counters.registry.get_sample_value("secateur_settled_total", {"status": "duplicate"}) == 2
    levels = [json.loads(line)["level"] for line in stream.getvalue().splitlines()]
    assert levels == ["info", "warning", "info"]
    assert "CANARY" not in stream.getvalue()


async def test_an_older_snapshot_of_a_conversation_is_superseded(lane: Lane) -> None:
    newer = await lane.take(snapshot(snapshot_id="s-2", sequence=10))
    older = await lane.take(snapshot(snapshot_id="s-1", sequence=9))
    same = await lane.take(snapshot(snapshot_id="s-3", sequence=10))

    verdicts = await lane.settler.settle([newer, older, same])

    assert verdicts == [Verdict.OK, Verdict.SUPERSEDED, Verdict.SUPERSEDED]
    assert [result.status for result in await lane.results()] == ["unchanged", "superseded", "superseded"]
    assert [row.reason for row in await lane.rows()][1] == ["newer_settled"]
    assert await lane.client.get(lane.keys.latest("c-1")) == b"10"


async def test_sequences_are_compared_as_numbers_up_to_the_largest(lane: Lane) -> None:
    low = await lane.take(snapshot(sequence=10**15 - 2))
    high = await lane.take(snapshot(sequence=10**15 - 1))
    short = await lane.take(snapshot(sequence=9))

    assert await lane.settler.settle([low, high, short]) == [Verdict.OK, Verdict.OK, Verdict.SUPERSEDED]


async def test_without_a_sequence_there_is_no_fence(lane: Lane) -> None:
    fenced = await lane.take(snapshot(sequence=5))
    free = [await lane.take(snapshot()) for _ in range(2)]

    assert await lane.settler.settle([fenced, *free]) == [Verdict.OK] * 3
    assert await lane.client.get(lane.keys.latest("c-1")) == b"5"


async def test_a_snapshot_without_an_id_leaves_no_marker_and_never_meets_one(lane: Lane) -> None:
    live = await lane.take(snapshot())
    await lane.client.xadd(lane.keys.batch, {b"__data__": live.entry.fields[1]}, id=live.entry.id)
    (entry,) = await lane.read(lane.keys.batch)

    verdicts = await lane.settler.settle([live, prune_entry(entry, lane.desk)])

    assert verdicts == [Verdict.OK, Verdict.OK]
    assert len({result.snapshot_id for result in await lane.results()}) == 2
    assert [key async for key in lane.client.scan_iter("*:done:*")] == []


async def test_a_refused_entry_becomes_a_dead_letter_with_its_own_fields(lane: Lane) -> None:
    settlement = await lane.take(b"{broken", trace="t-1")

    assert await lane.settler.settle([settlement]) == [Verdict.DEAD]

    (letter,) = await lane.dead()
    assert letter[b"__data__"] == b"{broken"
    assert letter[b"trace"] == b"t-1"
    assert letter[b"_code"] == b"not_json"
    assert letter[b"_detail"]
    assert letter[b"_attempts"] == b"1"
    assert letter[b"_source"] == f"{lane.keys.snapshots} {settlement.entry.id}".encode()
    assert b"_replayable" not in letter
    (row,) = await lane.rows()
    assert (row.status, row.reason) == ("refused", ["not_json"])
    assert await lane.results() == []
    assert await lane.pending() == 0


async def test_an_oversized_body_is_kept_as_hash_and_size(lane: Lane) -> None:
    body = b'"' + b"x" * 100_000 + b'"'

    await lane.settler.settle([await lane.take(body, trace="t-1")])

    (letter,) = await lane.dead()
    assert b"__data__" not in letter
    assert letter[b"_code"] == b"too_large"
    assert letter[b"_sha256"] == hashlib.sha256(body).hexdigest().encode()
    assert letter[b"_size"] == b"100002"
    assert letter[b"_replayable"] == b"no"
    assert letter[b"trace"] == b"t-1"


async def test_an_entry_of_very_many_fields_is_kept_in_part_and_says_so(lane: Lane) -> None:
    await lane.add(**{f"field-{number}": "v" for number in range(5_000)})
    (entry,) = await lane.read()

    assert await lane.settler.settle([prune_entry(entry, lane.desk)]) == [Verdict.DEAD]

    (letter,) = await lane.dead()
    assert letter[b"_code"] == b"too_many_fields"
    assert letter[b"_replayable"] == b"no"
    assert b"field-64" in letter
    assert b"field-65" not in letter


async def test_a_resend_of_a_dead_snapshot_adds_no_second_letter(lane: Lane) -> None:
    body = snapshot(snapshot_id="s-1", policy="no-such-preset")

    verdicts = await lane.settler.settle([await lane.take(body), await lane.take(body)])

    assert verdicts == [Verdict.DEAD, Verdict.DUPLICATE]
    assert len(await lane.dead()) == 1
    assert [row.status for row in await lane.rows()] == ["refused", "duplicate"]


async def test_a_mended_resend_of_a_dead_snapshot_gets_its_result(lane: Lane) -> None:
    refused = await lane.take(snapshot(snapshot_id="s-1", policy="no-such-preset"))
    mended = await lane.take(snapshot(snapshot_id="s-1"))

    assert await lane.settler.settle([refused, mended]) == [Verdict.DEAD, Verdict.OK]
    assert await lane.settler.settle([await lane.take(snapshot(snapshot_id="s-1"))]) == [Verdict.DUPLICATE]


async def test_a_refused_entry_under_a_settled_id_is_kept_all_the_same(lane: Lane) -> None:
    good = await lane.take(snapshot(snapshot_id="s-1"))
    bad = await lane.take(snapshot(snapshot_id="s-1", policy="no-such-preset"))

    assert await lane.settler.settle([good, bad]) == [Verdict.OK, Verdict.DEAD]
    assert not (await lane.client.get(lane.keys.done("s-1"))).startswith(b"dead:")


@pytest.mark.parametrize("name", ["pruned", "metrics", "dead", "attempts"])
async def test_a_key_of_the_wrong_type_leaves_the_entry_pending_and_nothing_written(lane: Lane, name: str) -> None:
    settlement = await lane.take(snapshot(snapshot_id="s-1", sequence=1))
    wrong = getattr(lane.keys, name)
    await lane.client.set(wrong, "in the way")

    assert await lane.settler.settle([settlement]) == [Verdict.KEPT]

    assert await lane.pending() == 1
    assert {key.decode() async for key in lane.client.scan_iter()} == {wrong, *lane.keys.inputs}
    await lane.client.delete(wrong)
    assert await lane.settler.settle([settlement]) == [Verdict.OK]


@pytest.mark.parametrize("name", ["done:s-1", "latest:c-1"])
async def test_a_marker_of_the_wrong_type_leaves_the_entry_pending(lane: Lane, name: str) -> None:
    settlement = await lane.take(snapshot(snapshot_id="s-1", sequence=1))
    await lane.client.rpush(f"{{main}}:{name}", "in the way")

    assert await lane.settler.settle([settlement]) == [Verdict.KEPT]
    assert await lane.pending() == 1
    assert await lane.results() == []


async def test_a_wrong_type_in_the_way_of_one_entry_does_not_hold_up_its_mates(lane: Lane) -> None:
    await lane.client.set(lane.keys.results("blocked"), "in the way")
    settlements = [await lane.take(snapshot()), await lane.take(snapshot(inbox="blocked")), await lane.take(snapshot())]

    assert await lane.settler.settle(settlements) == [Verdict.OK, Verdict.KEPT, Verdict.OK]


async def test_an_entry_deleted_while_pending_still_gets_its_result(lane: Lane) -> None:
    settlement = await lane.take(snapshot())
    await lane.client.xdel(lane.keys.snapshots, settlement.entry.id)

    assert await lane.settler.settle([settlement]) == [Verdict.OK]
    assert await lane.pending() == 0


async def test_a_refused_entry_deleted_while_pending_is_reported_as_vanished(lane: Lane) -> None:
    settlement = await lane.take(b"{broken")
    await lane.client.xdel(lane.keys.snapshots, settlement.entry.id)

    assert await lane.settler.settle([settlement]) == [Verdict.VANISHED]
    assert [row.status for row in await lane.rows()] == ["vanished"]
    assert await lane.pending() == 0


async def test_scripts_that_the_server_forgot_are_loaded_again(lane: Lane) -> None:
    await lane.settler.settle([await lane.take(snapshot())])
    await lane.client.script_flush()

    assert await lane.settler.settle([await lane.take(snapshot()) for _ in range(3)]) == [Verdict.OK] * 3


async def test_a_full_server_refuses_producers_and_lets_workers_settle(lane: Lane) -> None:
    settlements = [await lane.take(snapshot()), await lane.take(b"{broken")]
    await lane.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(OutOfMemoryError):
            await lane.add(__data__="{}")

        assert await lane.settler.settle(settlements) == [Verdict.OK, Verdict.DEAD]
    finally:
        await lane.client.config_set("maxmemory", 0)


async def test_a_lost_group_is_created_again_and_what_was_flushed_is_not_published(lane: Lane) -> None:
    settlement = await lane.take(snapshot())
    await lane.client.flushall()

    assert await lane.settler.settle([settlement]) == [Verdict.SETTLED]
    assert await lane.results() == []
    assert await lane.client.xinfo_groups(lane.keys.snapshots)


async def test_a_lost_group_with_its_stream_intact_is_read_again_from_the_oldest(lane: Lane) -> None:
    settlement = await lane.take(snapshot())
    await lane.client.xgroup_destroy(lane.keys.snapshots, GROUP)

    assert await lane.settler.settle([settlement]) == [Verdict.SETTLED]
    (entry,) = await lane.read()
    assert entry == settlement.entry


async def test_output_is_trimmed_when_a_limit_is_set_and_kept_when_it_is_0(lane: Lane) -> None:
    lane.settings = msgspec.structs.replace(lane.settings, results_kept=1, metrics_kept=0)
    settler = lane.settler_over(lane.client)
    for _ in range(3):
        await settler.settle([await lane.take(snapshot()) for _ in range(100)])

    assert await lane.client.xlen(lane.keys.pruned) < 300
    assert await lane.client.xlen(lane.keys.metrics) == 300


async def test_a_settled_suspect_is_no_longer_counted(lane: Lane) -> None:
    settlement = await lane.take(snapshot())
    await lane.client.hset(lane.keys.attempts, f"{lane.keys.snapshots} {settlement.entry.id}", 2)

    await lane.settler.settle([settlement])

    assert not await lane.client.exists(lane.keys.attempts)


async def test_a_lost_reply_is_asked_for_again_and_the_result_stays_single(lane: Lane, redis_url: str) -> None:
    settlements = [await lane.take(snapshot()) for _ in range(5)]
    await lane.settler.settle([await lane.take(snapshot())])  # the script is known, so the first reply is the settle's
    async with LossyProxy(redis_url) as proxy, connect(proxy.url) as client:
        await client.ping()
        proxy.lose_next_reply()

        verdicts = await lane.settler_over(client).settle(settlements)

    assert verdicts == [Verdict.SETTLED] * 5
    assert proxy.lost == 1
    assert len(await lane.results()) == 6
    assert await lane.pending() == 0


class LossyProxy:
    """Sits before the server and can swallow a reply and close the connection, or all replies without closing it."""

    def __init__(self, url: str) -> None:
        credentials, _, address = url.removeprefix("redis://").rpartition("@")
        host, _, port = address.partition("/")[0].rpartition(":")
        self._server = (host, int(port))
        self._prefix = f"redis://{credentials}@" if credentials else "redis://"
        self._loses = False
        self.is_silent = False
        self.lost = 0

    async def __aenter__(self) -> "LossyProxy":
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"{self._prefix}127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()

    def lose_next_reply(self) -> None:
        self._loses = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(*self._server)
        forward = asyncio.create_task(self._copy(reader, server_writer))
        while reply := await server_reader.read(65536):
            if self._loses:
                self._loses, self.lost = False, self.lost + 1
                break
            if self.is_silent:
                self.lost += 1
                continue
            writer.write(reply)
        forward.cancel()
        writer.close()
        server_writer.close()

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while sent := await reader.read(65536):
            writer.write(sent)
        writer.close()


async def test_an_inbox_goes_by_itself_when_nobody_reads_it(lane: Lane) -> None:
    await lane.settler.settle([await lane.take(snapshot(inbox="me")), await lane.take(snapshot())])

    assert 80_000_000 < await lane.client.pttl(lane.keys.results("me")) <= 86_400_000
    assert await lane.client.pttl(lane.keys.pruned) == -1


async def test_an_inbox_stays_for_ever_when_told_so(lane: Lane) -> None:
    lane.settings = msgspec.structs.replace(lane.settings, inbox_ttl_s=0)
    await lane.settler_over(lane.client).settle([await lane.take(snapshot(inbox="me"))])

    assert await lane.client.pttl(lane.keys.results("me")) == -1


async def test_the_marker_of_a_dead_snapshot_says_why(lane: Lane) -> None:
    await lane.settler.settle([await lane.take(snapshot(snapshot_id="s-1", policy="no-such-preset"))])

    ((letter, _),) = await lane.client.xrange(lane.keys.dead)
    assert await lane.client.get(lane.keys.done("s-1")) == b"dead:" + letter + b" unknown_policy"


async def test_a_snapshot_whose_letter_was_taken_away_can_die_again(lane: Lane) -> None:
    body = snapshot(snapshot_id="s-1", policy="no-such-preset")
    await lane.settler.settle([await lane.take(body)])
    await lane.client.xtrim(lane.keys.dead, maxlen=0)

    assert await lane.settler.settle([await lane.take(body), await lane.take(body)]) == [
        Verdict.DEAD,
        Verdict.DUPLICATE,
    ]
    assert len(await lane.dead()) == 1


def with_blobs(lane: Lane, above_bytes: int) -> Settler:
    lane.settings = msgspec.structs.replace(lane.settings, blob_above_bytes=above_bytes)
    return lane.settler_over(lane.client)


async def test_a_large_result_becomes_a_key_of_its_own(lane: Lane) -> None:
    long = [{"role": "user", "content": "words " * 100}]
    large = await lane.take(snapshot(snapshot_id="s-1", inbox="me", messages=long))
    small = await lane.take(snapshot(inbox="me"))
    settler = with_blobs(lane, above_bytes=len(large.result) - 1)

    assert await settler.settle([large, small]) == [Verdict.OK, Verdict.OK]

    (_, entry), (_, other) = await lane.client.xrange(lane.keys.results("me"))
    assert entry == {b"snapshot_id": b"s-1", b"blob": lane.keys.blob(large.entry.id).encode()}
    assert await lane.client.get(entry[b"blob"]) == large.result
    assert 80_000_000 < await lane.client.pttl(entry[b"blob"]) <= 86_400_000
    assert other.keys() == {b"__data__"}


async def test_a_resend_does_not_touch_the_blob_of_the_first(lane: Lane) -> None:
    settler = with_blobs(lane, above_bytes=1)
    first = await lane.take(snapshot(snapshot_id="s-1"))
    await settler.settle([first])
    other = await lane.take(snapshot(snapshot_id="s-1", messages=[{"role": "user", "content": "changed"}]))

    assert await settler.settle([other]) == [Verdict.OTHER_ARRAY]
    assert await lane.client.get(lane.keys.blob(first.entry.id)) == first.result
    assert not await lane.client.exists(lane.keys.blob(other.entry.id))


async def test_a_full_server_that_takes_no_blob_still_settles_the_result(lane: Lane) -> None:
    settlement = await lane.take(snapshot())
    settler = with_blobs(lane, above_bytes=1)
    await lane.client.config_set("maxmemory", 1)
    try:
        assert await settler.settle([settlement]) == [Verdict.OK]
    finally:
        await lane.client.config_set("maxmemory", 0)

    assert len(await lane.results()) == 1


async def test_a_lost_reply_with_a_blob_leaves_one_result(lane: Lane) -> None:
    settler = with_blobs(lane, above_bytes=1)
    settlement = await lane.take(snapshot())

    assert await settler.settle([settlement]) == [Verdict.OK]
    assert await settler.settle([settlement]) == [Verdict.SETTLED]
    assert await lane.client.xlen(lane.keys.pruned) == 1

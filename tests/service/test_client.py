"""Client: its own result and nobody else's, any number of calls at once, and the original array when all else fails."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from msgspec import Raw

from contracts import Refused
from service.admit import Limits
from service.audit import Auditor
from service.client import FAILED_OPEN, Answer, Secateur
from service.entry import prune_entry
from service.keys import Keys
from tests.faults.server import running_server
from tests.integration.workers import WORKER, Process, running
from tests.service.conftest import Lane
from tests.service.test_settle import LossyProxy

KEYS = Keys("main")
PATIENCE_S = 30.0  # for calls that are answered; no test waits that long
ADMITTED_WITHIN_S = 2.0  # for calls that are not; even a busy machine sends a snapshot in that time
WINDOW = {"prune": {"strategy": "sliding_window", "max_turns": 2}}


def talk(count: int = 6, mark: str = "") -> list[dict[str, Any]]:
    return [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"{mark} message {n}" + " word" * 20}
        for n in range(count)
    ]


@pytest.fixture
def worker(redis_url: str, tmp_path: Path) -> Iterator[Process]:
    """A real worker on the real server."""
    with running(WORKER, redis_url, tmp_path / "log", block_ms="200", claim_after_ms="500") as process:
        yield process


@pytest.fixture
def server(redis_url: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


@asynccontextmanager
async def served(lane: Lane) -> AsyncIterator[None]:
    """A worker inside this process, for the tests that need to hold it."""

    is_over = False

    async def work() -> None:
        while not is_over:
            entries = await lane.read()
            await lane.settler.settle([prune_entry(entry, lane.desk) for entry in entries])
            await asyncio.sleep(0.005)

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        is_over = True  # redis-py now and then swallows a cancellation
        await task


async def test_a_call_gets_the_pruned_array_from_a_real_worker(worker: Process, redis_url: str) -> None:
    messages = talk()
    async with Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        answer = await secateur.prune(messages, conversation_id="c-1", policy=WINDOW, metadata={"run": 7})

    assert answer.status == "pruned"
    assert answer.messages == messages[-2:]
    assert answer.messages[0] is messages[-2]  # what was not changed is the caller's own object
    assert answer.result is not None
    assert answer.result.conversation_id == "c-1"
    assert answer.result.metadata == Raw(b'{"run":7}')


async def test_many_calls_share_one_connection_and_each_gets_its_own_result(
    worker: Process, redis_url: str, server: "redis.Redis"
) -> None:
    async with Secateur(f"{redis_url}?client_name=agent", timeout_s=PATIENCE_S) as secateur:
        calls = [secateur.prune(talk(mark=f"call-{number}"), policy=WINDOW) for number in range(300)]
        answers = await asyncio.gather(*calls)
        ours = [row for row in server.client_list() if row["name"] == "agent"]

    assert [answer.status for answer in answers] == ["pruned"] * 300
    for number, answer in enumerate(answers):
        assert all(message["content"].startswith(f"call-{number} ") for message in answer.messages)
    assert len(ours) == 1
    assert server.xlen(KEYS.pruned) == 0


async def test_two_clients_do_not_read_each_others_results(worker: Process, redis_url: str) -> None:
    async with Secateur(redis_url, timeout_s=PATIENCE_S) as one, Secateur(redis_url, timeout_s=PATIENCE_S) as two:
        answers = await asyncio.gather(
            *(client.prune(talk(mark=f"{name}-{n}")) for n in range(50) for name, client in (("a", one), ("b", two)))
        )

    assert [answer.status for answer in answers] == ["unchanged"] * 100


async def test_the_inbox_is_gone_when_the_client_is(worker: Process, redis_url: str, server: "redis.Redis") -> None:
    async with Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        await asyncio.gather(*(secateur.prune(talk()) for _ in range(20)))

    assert list(server.scan_iter("*:inbox:*")) == []


async def test_an_edited_item_is_a_value_like_the_others(lane: Lane, redis_url: str) -> None:
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "long " * 500}]},
    ]
    async with served(lane), Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        plain = await secateur.prune(messages, policy={"compress": {"max_tool_result_tokens": 20}})
        raw = await secateur.prune(
            [Raw(json.dumps(message).encode()) for message in messages],
            policy={"compress": {"max_tool_result_tokens": 20}},
        )

    assert plain.messages[:2] == messages[:2]
    assert len(plain.messages[2]["content"][0]["content"]) < 200
    assert [json.loads(bytes(item)) for item in raw.messages] == plain.messages


async def test_the_caller_may_change_his_list_while_he_waits(lane: Lane, redis_url: str) -> None:
    messages = talk()
    expected = messages[-2:]
    async with Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        call = asyncio.create_task(secateur.prune(messages, policy=WINDOW))
        await asyncio.sleep(0)
        messages.clear()
        async with served(lane):
            answer = await call

    assert answer.messages == expected


async def test_no_worker_means_the_original_array_in_time_and_a_reason(redis_url: str) -> None:
    messages = talk()
    async with Secateur(redis_url, timeout_s=ADMITTED_WITHIN_S) as secateur:
        answer = await secateur.prune(messages)

    assert answer == Answer(messages, FAILED_OPEN, ["no_answer"])
    assert answer.messages is not messages


async def test_no_server_means_the_original_array_in_time_and_a_reason() -> None:
    messages = talk()
    async with Secateur("redis://127.0.0.1:1/0", timeout_s=0.2) as secateur:
        answer = await secateur.prune(messages)

    assert answer == Answer(messages, FAILED_OPEN, ["server_away"])


async def test_a_call_that_timed_out_leaves_nothing_for_the_next(lane: Lane, redis_url: str) -> None:
    async with Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        late = await secateur.prune(talk(mark="late"), timeout_s=0.05)
        async with served(lane):
            answer = await secateur.prune(talk(mark="next"))
        again = await asyncio.gather(*(secateur.prune(talk(), timeout_s=0.05) for _ in range(3)))

    assert late.status == FAILED_OPEN
    assert answer.status == "unchanged"
    assert all(message["content"].startswith("next") for message in answer.messages)
    assert [one.status for one in again] == [FAILED_OPEN] * 3


async def test_a_full_lane_is_said_at_once(lane: Lane, redis_url: str) -> None:
    await lane.add(__data__="{}")
    async with Secateur(redis_url, timeout_s=PATIENCE_S, limits=Limits(entries=1)) as secateur:
        answer = await secateur.prune(talk())

    assert (answer.status, answer.reason) == (FAILED_OPEN, ["lane_full"])


async def test_a_snapshot_that_became_a_dead_letter_is_not_waited_for(lane: Lane, redis_url: str) -> None:
    async with served(lane), Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        answer = await secateur.prune(talk(), policy="no-such-preset")

    assert (answer.status, answer.reason) == (FAILED_OPEN, ["unknown_policy"])


async def test_a_result_that_went_elsewhere_is_not_waited_for(lane: Lane, redis_url: str) -> None:
    await lane.settler.settle([await lane.take({"conversation_id": "c", "messages": [], "snapshot_id": "taken"})])
    async with served(lane), Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        answer = await secateur.prune([], snapshot_id="taken")

    assert (answer.status, answer.reason) == (FAILED_OPEN, ["result_gone"])


def asking(tool: str) -> list[dict[str, Any]]:
    """An array whose call has no result yet, in the middle: it is repaired by an insertion."""
    call = {"type": "tool_use", "id": "t", "name": tool, "input": {}}
    return [{"role": "user", "content": "go"}, {"role": "assistant", "content": [call]}, *talk(5)[1:]]


@pytest.mark.parametrize(
    ("first", "second", "policy"),
    [
        (talk(6, "one"), talk(6, "two"), WINDOW),
        (talk(6, "one"), talk(2, "two"), WINDOW),
        (asking("read"), talk(6, "two"), ""),
    ],
    ids=["dropped items differ", "positions that do not exist", "insertions only"],
)
async def test_a_result_is_never_applied_to_another_array_of_the_same_snapshot_id(
    lane: Lane, redis_url: str, first: list[Any], second: list[Any], policy: Any
) -> None:
    async with Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        late = await secateur.prune(first, snapshot_id="s-1", policy=policy, timeout_s=0.2)
        async with served(lane):
            answer = await secateur.prune(second, snapshot_id="s-1", policy=policy)

    assert late.status == FAILED_OPEN
    assert answer == Answer(second, FAILED_OPEN, ["other_array"])


@pytest.mark.parametrize("messages", [talk(), asking("read")], ids=["dropped", "inserted"])
async def test_the_same_array_sent_again_after_a_time_out_gets_its_result(
    lane: Lane, redis_url: str, messages: list[Any]
) -> None:
    async with Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        await secateur.prune(messages, snapshot_id="s-1", policy=WINDOW, timeout_s=0.2)
        async with served(lane):
            answer = await secateur.prune(messages, snapshot_id="s-1", policy=WINDOW)

    assert answer.status == "pruned"


async def test_raw_items_are_known_by_what_was_sent_of_them(lane: Lane, redis_url: str) -> None:
    messages = [Raw(b" " + json.dumps(message, indent=1).encode() + b"\n ") for message in talk()]
    async with served(lane), Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        answer = await secateur.prune(messages, policy=WINDOW)

    assert (answer.status, answer.messages) == ("pruned", messages[-2:])


def broken_rows(good: bytes) -> dict[str, dict[Any, Any]]:
    """Rows that no worker of this version writes, from one that it does."""
    result = json.loads(good)
    edit = {"stage": "prune", "action": "drop", "op": "replace", "position": 0, "reason": "outside_window"}
    edit |= {"tokens_before": 1, "tokens_after": 0, "sha256": "0"}
    return {
        "a replacement without its item": {"__data__": json.dumps(result | {"edits": [edit | {"op": "insert"}]})},
        "a status of a later version": {"__data__": json.dumps(result | {"status": "rewritten"})},
        "not a result": {"__data__": "[]"},
        "not UTF-8": {"__data__": b"\xff"},
        "a blob of another kind": {"snapshot_id": result["snapshot_id"], "blob": "{main}:snapshots"},
        "a blob for a name that is not UTF-8": {"snapshot_id": b"\xff", "blob": "{main}:none"},
        "no field that we know": {"other": "thing"},
    }


@pytest.mark.parametrize("kind", list(broken_rows(b'{"snapshot_id": ""}')))
async def test_a_row_that_cannot_be_used_fails_its_own_call_and_is_passed(
    lane: Lane, redis_url: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    messages = talk(mark="CANARY-9f3")
    async with Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        call = asyncio.create_task(secateur.prune(messages))
        await lane.client.xread({lane.keys.snapshots: "0"}, block=5_000)
        (entry,) = await lane.read()
        good = prune_entry(entry, lane.desk)
        row = broken_rows(good.result)[kind]
        await lane.client.xadd(lane.keys.results(secateur._name), row)
        await lane.client.set(lane.keys.done(good.snapshot_id), "settled")
        async with served(lane):
            others = await asyncio.gather(*(secateur.prune(talk(), timeout_s=5) for _ in range(20)))
        answer = await asyncio.wait_for(call, 10)
        await asyncio.sleep(0.05)
        left = await lane.client.xlen(lane.keys.results(secateur._name))

    assert {other.status for other in others} == {"unchanged"}
    assert (answer.status, answer.messages) == (FAILED_OPEN, messages)
    assert answer.reason in (["bad_result"], ["result_gone"])
    assert left == 0
    assert "CANARY" not in caplog.text


async def test_a_result_with_an_older_id_than_those_before_it_is_not_missed(lane: Lane, redis_url: str) -> None:
    async with Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        async with served(lane):
            await secateur.prune(talk())
        inbox = lane.keys.results(secateur._name)
        await lane.client.delete(inbox)  # as after a failover to a server whose clock is behind
        call = asyncio.create_task(secateur.prune(talk()))
        await lane.client.xread({lane.keys.snapshots: "0"}, block=5_000)
        (entry,) = await lane.read()
        await lane.client.xadd(inbox, {"__data__": prune_entry(entry, lane.desk).result}, id="1-1")
        answer = await call

    assert answer.status == "unchanged"


@pytest.mark.parametrize("key", ["{other}:blob:1", "{main}:snapshots", "anything"])
async def test_nobody_can_have_any_other_key_deleted_by_the_client(lane: Lane, redis_url: str, key: str) -> None:
    if key != lane.keys.snapshots:
        await lane.client.set(key, "somebody's")
    async with served(lane), Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        await lane.client.xadd(lane.keys.results(secateur._name), {"snapshot_id": "s-1", "blob": key})
        answer = await secateur.prune(talk())
        is_there = await lane.client.exists(key)

    assert answer.status == "unchanged"
    assert is_there


async def test_a_connection_lost_at_a_blob_costs_no_other_result(lane: Lane, redis_url: str) -> None:
    lane.settings = msgspec.structs.replace(lane.settings, blob_above_bytes=1)
    lane.settler = lane.settler_over(lane.client)
    async with served(lane), Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        fetch, faults = secateur._fetch, iter(range(2))

        async def fail_twice(*arguments: Any) -> bytes:
            if next(faults, None) is not None:
                raise redis.ConnectionError
            return await fetch(*arguments)

        secateur._fetch = fail_twice  # type: ignore[method-assign, assignment]
        answers = await asyncio.gather(*(secateur.prune(talk()) for _ in range(20)))

    assert {answer.status for answer in answers} == {"unchanged"}


async def test_an_older_snapshot_of_a_conversation_keeps_its_array(lane: Lane, redis_url: str) -> None:
    messages = talk()
    async with served(lane), Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        await secateur.prune(talk(8), conversation_id="c-1", sequence=2)
        answer = await secateur.prune(messages, conversation_id="c-1", sequence=1)

    assert (answer.status, answer.messages) == ("superseded", messages)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"conversation_id": "a\nb"}, "bad_conversation_id"),
        ({"format": "morse"}, "unknown_format"),
        ({"sequence": -1}, "out_of_range"),
    ],
)
async def test_a_mistake_is_raised_and_not_sent(
    fields: dict[str, Any], code: str, redis_url: str, server: "redis.Redis"
) -> None:
    async with Secateur(redis_url) as secateur:
        with pytest.raises(Refused) as refused:
            await secateur.prune(talk(), **fields)

    assert refused.value.code == code
    assert server.dbsize() == 0


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("CANARY-9f3 \ud800", "not_utf8"),
        (nested(100_000), "too_deep"),
        (object(), "wrong_shape"),
        ({("a", "pair"): 1}, "wrong_shape"),
        (2**80, ""),
        (float("nan"), ""),
    ],
    ids=["lone surrogate", "very deep", "not data", "not a name", "a large number", "not a number"],
)
async def test_what_has_no_wire_form_is_refused_like_any_other_mistake(
    content: Any, code: str, redis_url: str, server: "redis.Redis"
) -> None:
    refused = None
    async with Secateur(redis_url, timeout_s=0.1) as secateur:
        try:
            await secateur.prune([{"role": "user", "content": content}])
        except Refused as error:
            refused = error

    assert (refused.code if refused else "") == code
    assert "CANARY" not in str(refused)


async def test_two_calls_of_one_snapshot_id_at_once_are_a_mistake(redis_url: str) -> None:
    async with Secateur(redis_url, timeout_s=0.2) as secateur:
        first = asyncio.create_task(secateur.prune(talk(), snapshot_id="s-1"))
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="under way"):
            await secateur.prune(talk(), snapshot_id="s-1")
        await first


@pytest.mark.parametrize("turns", [20, pytest.param(1_000, marks=pytest.mark.nightly)])
async def test_cancelled_calls_leave_the_others_their_own_results(lane: Lane, redis_url: str, turns: int) -> None:
    async with served(lane), Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        for turn in range(turns):
            calls = [asyncio.create_task(secateur.prune(talk(mark=f"{turn}-{n}"))) for n in range(20)]
            for pause, call in enumerate(calls[::2]):
                await asyncio.sleep(0.001 * (pause % 3))
                call.cancel()
            ended = await asyncio.gather(*calls, return_exceptions=True)
            for n, answer in enumerate(ended):
                if isinstance(answer, Answer):
                    assert answer.status == "unchanged"
                    assert all(message["content"].startswith(f"{turn}-{n} ") for message in answer.messages)
                else:
                    assert isinstance(answer, asyncio.CancelledError)
            assert not any(isinstance(answer, BaseException) for answer in ended[1::2])
        assert secateur._calls == {}


async def test_a_call_cancelled_before_it_was_sent_is_not_sent(redis_url: str, server: "redis.Redis") -> None:
    async with Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        call = asyncio.create_task(secateur.prune(talk()))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        kept = await secateur.prune(talk(), timeout_s=ADMITTED_WITHIN_S)

    assert kept.status == FAILED_OPEN
    assert server.xlen(KEYS.snapshots) == 1


async def test_calls_under_way_get_their_arrays_back_when_the_client_is_closed(redis_url: str) -> None:
    messages = talk()
    async with Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        call = asyncio.create_task(secateur.prune(messages))
        await asyncio.sleep(0.05)

    assert await call == Answer(messages, FAILED_OPEN, ["client_closed"])
    with pytest.raises(RuntimeError, match="async with"):
        await secateur.prune(messages)


async def test_broken_connections_cost_time_and_nothing_else(lane: Lane, redis_url: str) -> None:
    async with served(lane), LossyProxy(redis_url) as proxy, Secateur(proxy.url, timeout_s=PATIENCE_S) as secateur:
        proxy.lose_next_reply()
        answers = []
        for turn in range(10):
            calls = [asyncio.create_task(secateur.prune(talk(mark=f"{turn}-{n}"))) for n in range(10)]
            await asyncio.sleep(0.002 * turn)
            proxy.lose_next_reply()
            answers += await asyncio.gather(*calls)

    assert proxy.lost >= 3
    assert {answer.status for answer in answers} == {"unchanged"}
    rows = await lane.rows()
    assert len(rows) == len({row.snapshot_id for row in rows}) == 100  # none was admitted twice


async def test_a_server_that_is_killed_and_comes_back_answers_every_call_once(tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "server") as server,
        running(WORKER, server.url, tmp_path / "log", block_ms="200", claim_after_ms="500"),
    ):
        async with Secateur(server.url, timeout_s=PATIENCE_S) as secateur:
            answers = [await secateur.prune(talk())]
            for turn in range(3):
                calls = [asyncio.create_task(secateur.prune(talk(mark=f"{turn}-{n}"))) for n in range(50)]
                await asyncio.sleep(0.005 * turn)
                server.kill()
                await asyncio.to_thread(server.start)
                answers += await asyncio.gather(*calls)
        with server.client() as client:
            report = Auditor(client, KEYS).run()

    assert {answer.status for answer in answers} == {"unchanged"}
    assert (report.is_sound, report.settled) == (True, 151)


async def test_a_large_result_comes_from_its_blob_which_is_then_gone(lane: Lane, redis_url: str) -> None:
    lane.settings = msgspec.structs.replace(lane.settings, blob_above_bytes=1)
    lane.settler = lane.settler_over(lane.client)
    async with served(lane), Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        answers = await asyncio.gather(*(secateur.prune(talk(), policy=WINDOW) for _ in range(20)))

    assert {answer.status for answer in answers} == {"pruned"}
    assert [key async for key in lane.client.scan_iter("*:blob:*")] == []


async def test_bodies_are_packed_when_asked_for(lane: Lane, redis_url: str) -> None:
    async with Secateur(redis_url, timeout_s=PATIENCE_S, is_packing=True) as secateur:
        call = asyncio.create_task(secateur.prune(talk(200), policy=WINDOW))
        ((_, (entry,)),) = await lane.client.xread({lane.keys.snapshots: "0"}, block=5_000)
        async with served(lane):
            answer = await call

    assert entry[1][b"enc"] == b"zstd"
    assert len(answer.messages) == 2


async def test_nothing_of_the_conversation_is_logged(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with Secateur(redis_url.replace("redis://:", "redis://:wrong"), timeout_s=ADMITTED_WITHIN_S) as secateur:
        answer = await secateur.prune([{"role": "user", "content": "CANARY-9f3"}])

    assert answer.reason == ["server_away"]
    assert "not sent yet" in caplog.text
    assert "CANARY" not in caplog.text
    assert redis_url.partition("@")[0].removeprefix("redis://:") not in caplog.text

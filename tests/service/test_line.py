"""Line: replies find those who asked, whatever is pushed, cancelled or broken in between."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis
from redis.exceptions import ResponseError

from service.client import line as line_module
from service.client import secateur as secateur_module
from service.client.line import WATCHED, Line
from service.client.secateur import Secateur
from tests.service.conftest import Lane
from tests.service.test_client import PATIENCE_S, served, talk


@pytest.fixture
async def line(redis_url: str) -> AsyncIterator[Line]:
    one = Line(redis_url)
    yield one
    await one.close()


async def count_up(line: Line, name: str, times: int) -> list[int]:
    """Replies that tell whose they are, with empty ones between them."""
    numbers = []
    for _ in range(times):
        nothing, number, refused = await line.ask([("GET", "none"), ("INCR", name), ("INCR",)])
        assert nothing is None
        assert isinstance(refused, ResponseError)
        numbers.append(number)
    return numbers


async def test_everybody_gets_his_own_replies(line: Line) -> None:
    counted = await asyncio.gather(*(count_up(line, f"n-{n}", 20) for n in range(50)))

    assert counted == [list(range(1, 21))] * 50


async def test_a_push_is_no_reply_and_says_that_a_watched_key_changed(line: Line, lane: Lane) -> None:
    await line.ask([WATCHED, ("GET", "watched"), ("GET", "not-watched")])
    line.changed.clear()
    await lane.client.set("not-watched", 1)
    assert await line.ask([("GET", "none")]) == [None]
    assert not line.changed.is_set()

    await lane.client.set("watched", 1)
    assert await line.ask([("GET", "none"), ("PING",)]) == [None, b"PONG"]
    await asyncio.wait_for(line.changed.wait(), PATIENCE_S)


async def test_what_the_line_changes_itself_is_no_news_to_it(line: Line) -> None:
    await line.ask([WATCHED, ("GET", "mine")])
    line.changed.clear()
    await line.ask([("SET", "mine", 1), ("PING",)])

    assert not line.changed.is_set()


async def test_a_question_that_was_given_up_leaves_the_others_their_replies(line: Line) -> None:
    async with asyncio.TaskGroup() as group:
        for turn in range(20):
            given_up = asyncio.create_task(line.ask([("ECHO", f"lost-{turn}")] * 50))
            kept = group.create_task(line.ask([("ECHO", f"kept-{turn}")]))
            for _ in range(turn % 5):
                await asyncio.sleep(0)
            given_up.cancel()
            assert await kept == [b"kept-%d" % turn]


async def test_a_silent_server_is_given_up_and_the_next_question_answered(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_module, "SOCKET_TIMEOUT_S", 0.3)
    assert await line.ask([("PING",)]) == [b"PONG"]
    with pytest.raises(TimeoutError):
        await line.ask([("XREAD", "BLOCK", "0", "STREAMS", "none", "$")])

    assert await line.ask([("PING",)]) == [b"PONG"]


async def test_a_broken_connection_is_told_to_all_who_wait_and_opened_again(line: Line, lane: Lane) -> None:
    await line.ask([("PING",)])
    waiting = [asyncio.create_task(line.ask([("BLPOP", f"none-{n}", 0)])) for n in range(3)]
    await asyncio.sleep(0.1)
    await lane.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ended] == [redis.ConnectionError] * 3
    assert await line.ask([("PING",)]) == [b"PONG"]


async def test_a_result_is_pushed_and_not_found_by_looking_again(
    lane: Lane, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secateur_module, "LOOK_EVERY_S", 1e6)
    async with served(lane), Secateur(redis_url, timeout_s=PATIENCE_S) as secateur:
        for _ in range(20):
            answer = await secateur.prune(talk())
            assert answer.status == "unchanged"

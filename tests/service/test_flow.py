"""Flow: of the snapshots of one conversation only the newest is pruned, and each still gets its one result."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

import pipeline
from service.counters import Counters
from service.entry import Opened, open_entry, pass_over
from service.handler import Handler
from service.health import Health
from service.heartbeat import Heartbeat
from service.isolate import Cell
from service.lane import connect_blocking
from service.observe import open_log
from service.settle import Verdict
from tests.service.conftest import Lane, snapshot


class Bench:
    """A handler on a lane, and which snapshots it has pruned."""

    def __init__(self, lane: Lane, handler: Handler, pruned: list[str]) -> None:
        self.lane = lane
        self.pruned = pruned
        self._handler = handler

    async def handle(self) -> dict[str, str]:
        """Handle all there is as one batch; the status of each snapshot."""
        await self._handler.handle(await self.lane.read())
        assert await self.lane.pending() == 0
        return {result.snapshot_id: result.status for result in await self.lane.results()}

    async def add(self, name: str, sequence: int | None = None, conversation: str = "c-1", **fields: object) -> None:
        known = {} if sequence is None else {"sequence": sequence}
        body = snapshot(conversation_id=conversation, snapshot_id=name, **known, **fields)
        await self.lane.add(__data__=_text(body))


def _text(body: dict[str, object]) -> bytes:
    return json.dumps(body).encode()


@pytest.fixture
def pruned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the snapshots that the pipeline gets to see."""
    seen: list[str] = []
    real = pipeline.prune

    def watched(snapshot, *arguments, **options):  # type: ignore[no-untyped-def]
        seen.append(snapshot.snapshot_id)
        return real(snapshot, *arguments, **options)

    monkeypatch.setattr(pipeline, "prune", watched)
    return seen


@pytest_asyncio.fixture
async def bench(lane: Lane, redis_url: str, pruned: list[str]) -> AsyncIterator[Bench]:
    cell = Cell(lane.desk, 10, 1024)
    with connect_blocking(redis_url) as client:
        heartbeat = Heartbeat(client, "tester", 30_000)
        log = open_log("json", "error")
        handler = Handler(
            lane.client, lane.keys, lane.desk, 10, lane.settler, cell, heartbeat, Health(), Counters(), log
        )
        yield Bench(lane, handler, pruned)
    await cell.close()


async def test_of_one_batch_only_the_newest_of_a_conversation_is_pruned(bench: Bench) -> None:
    for sequence in (3, 1, 5, 2, 4):
        await bench.add(f"s-{sequence}", sequence)
    await bench.add("other", 1, conversation="c-2")

    statuses = await bench.handle()

    assert sorted(bench.pruned) == ["other", "s-5"]
    superseded = {f"s-{sequence}": "superseded" for sequence in (1, 2, 3, 4)}
    assert statuses == {"s-5": "unchanged", "other": "unchanged"} | superseded
    rows = {row.snapshot_id: (row.status, row.messages_before) for row in await bench.lane.rows()}
    assert rows["s-1"] == ("superseded", 0)
    assert rows["s-5"] == ("unchanged", 1)


async def test_a_snapshot_older_than_what_was_settled_is_not_pruned(bench: Bench) -> None:
    await bench.add("new", 9)
    await bench.handle()
    await bench.add("old", 8, metadata={"k": 1})

    statuses = await bench.handle()

    assert bench.pruned == ["new"]
    assert statuses["old"] == "superseded"
    old = next(result for result in await bench.lane.results() if result.snapshot_id == "old")
    assert (old.reason, old.sequence, old.tokens.before) == (["newer_settled"], 8, 0)


async def test_without_sequences_every_snapshot_is_pruned(bench: Bench) -> None:
    for name in ("a", "b"):
        await bench.add(name)

    assert await bench.handle() == {"a": "unchanged", "b": "unchanged"}
    assert bench.pruned == ["a", "b"]


async def test_of_equal_sequences_the_first_counts(bench: Bench) -> None:
    for name in ("a", "b"):
        await bench.add(name, 7)

    assert await bench.handle() == {"a": "unchanged", "b": "superseded"}


async def test_when_the_newest_is_refused_the_next_one_is_pruned(bench: Bench) -> None:
    await bench.add("s-1", 1)
    await bench.add("s-2", 2)
    await bench.add("s-3", 3, policy="no-such-preset")

    statuses = await bench.handle()

    assert bench.pruned == ["s-2"]
    assert statuses == {"s-1": "superseded", "s-2": "unchanged"}
    assert [letter[b"_code"] for letter in await bench.lane.dead()] == [b"unknown_policy"]


async def test_a_resend_among_the_older_ones_is_a_duplicate(bench: Bench) -> None:
    await bench.add("s-1", 1)
    await bench.handle()
    await bench.add("s-1", 1)
    await bench.add("s-2", 2)
    await bench.handle()

    assert [result.status for result in await bench.lane.results()] == ["unchanged", "unchanged", "duplicate"]
    assert bench.pruned == ["s-1", "s-2"]


async def test_a_settlement_without_a_result_is_refused_when_nothing_newer_was_settled(lane: Lane) -> None:
    await lane.add(__data__=_text(snapshot(snapshot_id="s-1", sequence=1)))
    (entry,) = await lane.read()
    opened = open_entry(entry, lane.desk)
    assert isinstance(opened, Opened)

    assert await lane.settler.settle([pass_over(opened, lane.desk)]) == [Verdict.NEEDED]
    assert await lane.pending() == 1
    assert await lane.results() == []
    assert await lane.rows() == []

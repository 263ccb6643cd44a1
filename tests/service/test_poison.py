"""Cell: a child that tries suspects one at a time, dies of a poison, and is replaced."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import pytest_asyncio

from contracts import Code
from service.entry import Desk, prune_entry
from service.isolate import AttemptFailed, Cell, CellUnavailable
from service.settings import load_settings
from service.settle import Entry
from tests.service.conftest import snapshot

COMMAND = (sys.executable, "-m", "tests.integration.poison_worker", "cell")
DESK = Desk("tester", "{main}:snapshots:batch", load_settings({}).policy, 100_000, 4)


def suspect(**fields: Any) -> Entry:
    body = json.dumps(snapshot(snapshot_id="s-1", sequence=7, **fields)).encode()
    return Entry("{main}:snapshots", "1700000000000-0", [b"__data__", body], attempts=2)


@pytest_asyncio.fixture
async def cell() -> AsyncIterator[Cell]:
    cell = Cell(DESK, deadline_s=1, memory_mb=768, command=COMMAND)
    yield cell
    await cell.close()


def children() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if "tests.integration.poison_worker" in one.cmdline()]


async def test_an_innocent_gets_the_result_it_would_have_had_in_process(cell: Cell) -> None:
    innocent = suspect()

    settlement = await cell.run(innocent)

    assert settlement.result == prune_entry(innocent, DESK).result
    assert settlement.entry == innocent
    assert settlement.metrics.attempts == 2


async def test_suspects_that_come_back_share_one_child(cell: Cell) -> None:
    await cell.run(suspect())
    (first,) = children()
    await cell.run(suspect())

    assert children() == [first]


async def test_a_child_that_nobody_needs_goes(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.isolate.KEPT_IDLE_S", 0.01)
    await cell.run(suspect())
    while children():  # noqa: ASYNC110  the end of a process sets no event
        await asyncio.sleep(0.01)

    assert (await cell.run(suspect())).result


async def test_bad_input_is_refused_as_anywhere_else(cell: Cell) -> None:
    settlement = await cell.run(Entry("{main}:snapshots", "1-1", [b"__data__", b"{broken"], attempts=1))

    assert settlement.refusal
    assert settlement.refusal.code is Code.NOT_JSON


@pytest.mark.parametrize(
    ("poison", "code"), [("crash", Code.CRASHED), ("hang", Code.TIMED_OUT), ("eat", Code.OUT_OF_MEMORY)]
)
async def test_a_poison_is_told_by_how_its_child_ended_and_the_next_suspect_gets_a_new_one(
    cell: Cell, poison: str, code: Code
) -> None:
    with pytest.raises(AttemptFailed) as failed:
        await cell.run(suspect(workload=poison))

    assert failed.value.refused.code is code
    assert failed.value.snapshot
    assert (failed.value.snapshot.snapshot_id, failed.value.snapshot.sequence) == ("s-1", 7)
    assert children() == []
    assert (await cell.run(suspect())).result


async def test_a_child_that_cannot_start_says_nothing_about_the_suspect(tmp_path: Path) -> None:
    for command in ((str(tmp_path / "missing"),), (sys.executable, "-c", "")):
        with pytest.raises(CellUnavailable):
            await Cell(DESK, 1, 768, command).run(suspect())


async def test_a_closed_cell_leaves_no_child(cell: Cell) -> None:
    await cell.run(suspect())
    await cell.close()

    assert children() == []


def test_a_desk_travels_unchanged() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(DESK), type=Desk) == DESK

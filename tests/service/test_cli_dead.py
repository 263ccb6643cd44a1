"""``secateur dead``: letters are listed without content, shown whole on request, and replayed once."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from service.cli import main
from service.dead import DeadLetters, Search
from service.entry import prune_entry
from service.keys import Keys
from service.lane import connect_blocking
from service.settle import Verdict
from tests.service.conftest import Lane, snapshot

pytestmark = pytest.mark.usefixtures("only_the_server_is_set")

CANARY = "CANARY-9f3"
Captured = pytest.CaptureFixture[str]


async def bury(lane: Lane, *bodies: Any, stream: str = "", **fields: Any) -> list[str]:
    """Make dead letters of some bodies; their ids."""
    for body in bodies:
        verdicts = await lane.settler.settle([await lane.take(body, stream, **fields)])
        assert verdicts == [Verdict.DEAD]
    return [letter_id.decode() for letter_id, _ in await lane.client.xrange(lane.keys.dead)]


def bad(name: str = "s-1", **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": CANARY}]
    return snapshot(snapshot_id=name, policy="no-such-preset", messages=messages) | fields


async def settle_all(lane: Lane) -> list[Verdict]:
    entries = [entry for stream in lane.keys.inputs for entry in await lane.read(stream)]
    return await lane.settler.settle([prune_entry(entry, lane.desk) for entry in entries])


async def test_list_has_a_line_for_each_letter_and_no_content(lane: Lane, capsys: Captured) -> None:
    ids = await bury(lane, bad("s-1"), b"{" + CANARY.encode(), trace="t-1")

    assert main(["dead", "list"]) == 0
    out, err = capsys.readouterr()
    first, second = out.splitlines()
    assert first.startswith(f"{ids[0]}  0s  unknown_policy  s-1  ")
    assert second.startswith(f"{ids[1]}  0s  not_json  e:")
    assert "2 letters (unknown_policy 1, not_json 1)" in err
    assert CANARY not in out + err


async def test_list_as_json_has_no_content_either(lane: Lane, capsys: Captured) -> None:
    (letter_id,) = await bury(lane, bad())

    assert main(["dead", "list", "--json"]) == 0
    out = capsys.readouterr().out
    letter = json.loads(out)
    assert (letter["id"], letter["code"], letter["snapshot_id"]) == (letter_id, "unknown_policy", "s-1")
    assert CANARY not in out


async def test_an_id_or_a_detail_cannot_break_the_line(lane: Lane, capsys: Captured) -> None:
    await lane.client.xadd(lane.keys.dead, {"_code": "internal", "_detail": "a\x1b[2J\nb", "_snapshot_id": "x\ny"})

    assert main(["dead", "list"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert "\x1b" not in out


async def test_letters_are_read_in_pages(lane: Lane, capsys: Captured) -> None:
    pipeline = lane.client.pipeline(transaction=False)
    for number in range(250):
        pipeline.xadd(lane.keys.dead, {"__data__": "x", "_code": "internal", "_snapshot_id": f"s-{number}"})
    await pipeline.execute()

    assert main(["dead", "list"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[3] for line in out.splitlines()] == [f"s-{number}" for number in range(250)]
    assert "250 letters" in err
    assert main(["dead", "list", "--limit", "7"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 7


async def test_list_filters_by_code_and_age(lane: Lane, capsys: Captured) -> None:
    seconds, _ = await lane.client.time()
    for age_s, code in ((7_200, "internal"), (7_200, "not_json"), (60, "internal")):
        await lane.client.xadd(lane.keys.dead, {"_code": code}, id=f"{(seconds - age_s) * 1000}-*")

    def codes(*arguments: str) -> list[str]:
        assert main(["dead", "list", *arguments]) == 0
        return [line.split()[2] for line in capsys.readouterr().out.splitlines()]

    assert codes("--code", "internal") == ["internal", "internal"]
    assert codes("--older-than", "1h") == ["internal", "not_json"]
    assert codes("--newer-than", "1h") == ["internal"]
    assert codes("--older-than", "30s", "--newer-than", "90m", "--code", "not_json") == []
    assert codes("--code", "internal", "--code", "not_json", "--older-than", "1h") == ["internal", "not_json"]


async def test_show_prints_the_whole_letter(lane: Lane, capsys: Captured) -> None:
    body = bad()
    (letter_id,) = await bury(lane, body, trace="t-1")

    assert main(["dead", "show", letter_id]) == 0
    letter = json.loads(capsys.readouterr().out)
    assert json.loads(letter["fields"]["__data__"]) == body
    assert letter["fields"]["trace"] == "t-1"
    assert (letter["code"], letter["attempts"], letter["replayable"]) == ("unknown_policy", 1, True)
    assert letter["fields"].keys() == {"__data__", "trace"}


async def test_show_escapes_what_is_no_text(lane: Lane, capsys: Captured) -> None:
    (letter_id,) = await bury(lane, b"\xff\x00{")

    assert main(["dead", "show", letter_id]) == 0
    assert json.loads(capsys.readouterr().out)["fields"]["__data__"] == "\\xff\x00{"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "nonsense"], "'nonsense' is no letter's id"),
        (["show", "1-1"], "there is no letter 1-1"),
        (["replay", "1-1"], "there is no letter 1-1"),
        (["replay", "1"], "'1' is no letter's id"),
        (["replay"], "say which letters"),
        (["replay", "--all", "1-1"], "say which letters"),
        (["list", "--code", "nonsens"], "no such code: nonsens"),
        (["list", "--older-than", "yesterday"], "invalid age value"),
        (["list", "--limit", "0"], "invalid positive number value"),
        (["fetch"], "invalid choice"),
        ([], "required"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], says: str, capsys: Captured) -> None:
    try:
        code: Any = main(["dead", *arguments])
    except SystemExit as ended:
        code = ended.code
    err = capsys.readouterr().err
    assert code == 2
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("act", ["list", "show", "replay"])
def test_every_act_has_help_with_an_example(act: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["dead", act, "--help"])

    assert ended.value.code == 0
    assert f"example:\n  secateur dead {act}" in capsys.readouterr().out


async def test_a_dry_run_says_what_it_would_do_and_does_nothing(lane: Lane, capsys: Captured) -> None:
    ids = await bury(lane, bad("s-1"), b"{broken", b'"' + b"x" * 100_000 + b'"')

    assert main(["dead", "replay", "--all", "--dry-run"]) == 0
    err = capsys.readouterr().err
    assert "would replay 2 letters" in err
    assert "1 would be kept" in err
    assert len(await lane.dead()) == len(ids)
    assert await lane.client.exists(lane.keys.ops) == 0
    assert await lane.client.xlen(lane.keys.snapshots) == 0


async def test_a_replayed_snapshot_gets_its_result_once_the_cause_is_gone(lane: Lane, capsys: Captured) -> None:
    # The body is fine; what refused it was a worker that did not know better.
    await bury(lane, bad())
    ((letter_id, fields),) = await lane.client.xrange(lane.keys.dead)
    good = json.dumps(snapshot(snapshot_id="s-1"))
    await lane.client.xdel(lane.keys.dead, letter_id)
    await lane.client.xadd(
        lane.keys.dead, fields | {b"__data__": good.encode()}, id=letter_id.decode().partition("-")[0] + "-*"
    )

    assert main(["dead", "replay", "--code", "unknown_policy"]) == 0
    assert "1 replayed, 0 kept, 0 gone already" in capsys.readouterr().err
    assert await settle_all(lane) == [Verdict.OK]
    assert [result.snapshot_id for result in await lane.results()] == ["s-1"]
    assert await lane.dead() == []


async def test_a_replay_that_dies_again_is_a_letter_again_and_counts(lane: Lane, capsys: Captured) -> None:
    body = bad()
    await bury(lane, body, trace="t-1")
    for replays in range(1, 4):
        assert main(["dead", "replay", "--all"]) == 0
        assert await settle_all(lane) == [Verdict.DEAD]
        (letter,) = await lane.dead()
        assert json.loads(letter[b"__data__"]) == body
        assert letter[b"trace"] == b"t-1"
        assert letter[b"_replays"] == str(replays).encode()
        assert letter[b"_code"] == b"unknown_policy"
    capsys.readouterr()

    assert main(["dead", "replay", "--all"]) == 0
    err = capsys.readouterr().err
    assert "kept: it was replayed 3 times" in err
    assert "0 replayed, 1 kept" in err
    assert len(await lane.dead()) == 1
    assert main(["dead", "replay", "--all", "--max-replays", "4"]) == 0
    assert await lane.dead() == []


async def test_a_letter_goes_back_to_the_stream_it_came_from(lane: Lane) -> None:
    await bury(lane, bad("s-1"))
    await bury(lane, bad("s-2"), stream=lane.keys.batch)

    assert main(["dead", "replay", "--all"]) == 0
    ((_, live),) = await lane.client.xrange(lane.keys.snapshots)
    ((_, batch),) = await lane.client.xrange(lane.keys.batch)
    assert json.loads(live[b"__data__"])["snapshot_id"] == "s-1"
    assert json.loads(batch[b"__data__"])["snapshot_id"] == "s-2"


async def test_every_replay_is_recorded(lane: Lane) -> None:
    (letter_id,) = await bury(lane, bad())

    assert main(["dead", "replay", letter_id]) == 0
    ((_, record),) = await lane.client.xrange(lane.keys.ops)
    ((entry_id, _),) = await lane.client.xrange(lane.keys.snapshots)
    assert record[b"act"] == b"replay"
    assert record[b"letter"] == letter_id.encode()
    assert record[b"entry"] == lane.keys.snapshots.encode() + b" " + entry_id
    assert (record[b"code"], record[b"snapshot_id"], record[b"replays"]) == (b"unknown_policy", b"s-1", b"1")
    assert b"@" in record[b"by"]
    assert CANARY not in str(record)


async def test_a_replay_does_not_move_the_loss_balance(lane: Lane) -> None:
    await bury(lane, bad("s-1"), bad("s-2"))
    main(["dead", "replay", "--all"])
    await settle_all(lane)

    streams: Any = [await lane.client.xinfo_stream(stream) for stream in (*lane.keys.inputs, lane.keys.metrics)]
    *inputs, metrics = streams
    assert sum(stream["entries-added"] - stream["length"] for stream in inputs) == metrics["entries-added"] == 4


async def test_what_is_not_whole_is_kept(lane: Lane, capsys: Captured) -> None:
    (letter_id,) = await bury(lane, b'"' + b"x" * 100_000 + b'"')

    assert main(["dead", "replay", letter_id]) == 2
    assert f"{letter_id} (too_large) kept: it is not whole" in capsys.readouterr().err
    assert len(await lane.dead()) == 1


async def test_an_entry_of_as_many_fields_as_allowed_can_be_replayed(lane: Lane) -> None:
    await bury(lane, bad(), **{f"field-{number}": "v" for number in range(63)})

    assert main(["dead", "replay", "--all"]) == 0
    assert await settle_all(lane) == [Verdict.DEAD]
    (letter,) = await lane.dead()
    assert letter[b"_code"] == b"unknown_policy"
    assert b"_replayable" not in letter
    assert b"field-62" in letter


async def test_a_full_stream_takes_no_replays(lane: Lane, redis_url: str) -> None:
    (letter_id,) = await bury(lane, bad())
    await lane.add(__data__="{}")
    with connect_blocking(redis_url) as client:
        letters = DeadLetters(client, lane.keys)
        outcome = letters.replay(letter_id, operator="me", most_replays=3, most_entries=1)

        assert outcome.verdict == "FULL"
        assert letters.count() == 1


async def test_the_run_ends_with_the_letters_it_began_with(lane: Lane, redis_url: str) -> None:
    await bury(lane, bad("s-1"))
    with connect_blocking(redis_url) as client:
        letters = DeadLetters(client, lane.keys)
        search = Search(last_id=letters.last_id())
        await bury(lane, bad("s-2"))

        assert [letter.snapshot_id for letter in letters.find(search)] == ["s-1"]


def replay_at_once(processes: int) -> list[str]:
    """What several commands said that were started together."""
    command = [sys.executable, "-m", "service.cli", "dead", "replay", "--all", "--rate", "100000"]
    replays = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(processes)]
    said = [replay.communicate(timeout=60)[1] for replay in replays]
    assert [replay.returncode for replay in replays] == [0] * processes, said
    return said


async def test_two_replays_at_once_send_each_letter_back_once(lane: Lane) -> None:
    names = [f"s-{number}" for number in range(200)]
    await bury(lane, *(bad(name) for name in names))

    said = replay_at_once(3)

    assert sum(int(text.split(" replayed")[0].rsplit(" ", 1)[1]) for text in said) == 200
    entries = await lane.client.xrange(lane.keys.snapshots)
    assert sorted(json.loads(fields[b"__data__"])["snapshot_id"] for _, fields in entries) == sorted(names)
    assert await lane.dead() == []
    assert await lane.client.xlen(lane.keys.ops) == 200


def replay_naively(client: "redis.Redis", keys: Keys, letter_id: str) -> None:
    """The mutant: look, add and delete as three acts."""
    found: Any = client.xrange(keys.dead, letter_id, letter_id)
    for _, fields in found:
        client.xadd(keys.snapshots, fields)
        client.xdel(keys.dead, letter_id)


def replay_atomically(client: "redis.Redis", keys: Keys, letter_id: str) -> None:
    DeadLetters(client, keys).replay(letter_id, operator="me", most_replays=3, most_entries=0)


@pytest.mark.parametrize(("replay", "is_sound"), [(replay_atomically, True), (replay_naively, False)])
async def test_operators_who_replay_the_same_letters_in_step_add_each_once(
    lane: Lane, redis_url: str, replay: Callable[..., None], is_sound: bool
) -> None:
    ids = await bury(lane, *(bad(f"s-{number}") for number in range(100)))
    operators, in_step = 4, threading.Barrier(4)

    def work(_: int) -> None:
        with connect_blocking(redis_url) as client:
            for letter_id in ids:
                in_step.wait(30)
                replay(client, lane.keys, letter_id)

    with ThreadPoolExecutor(operators) as pool:
        list(pool.map(work, range(operators)))

    assert (await lane.client.xlen(lane.keys.snapshots) == len(ids)) is is_sound
    assert await lane.dead() == []


@pytest.mark.parametrize("name", ["dead", "ops", "snapshots", "batch"])
async def test_a_key_of_the_wrong_type_is_refused_before_anything_is_written(
    lane: Lane, redis_url: str, name: str
) -> None:
    (letter_id,) = await bury(lane, bad())
    wrong = getattr(lane.keys, name)
    await lane.client.delete(wrong)
    await lane.client.set(wrong, "in the way")

    with connect_blocking(redis_url) as client, pytest.raises(Exception, match="BADTYPE"):
        DeadLetters(client, lane.keys).replay(letter_id, operator="me", most_replays=3, most_entries=0)

    assert name == "dead" or len(await lane.dead()) == 1

"""``secateur tail``: results as workers publish them, without conversation text unless asked for."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from contracts import Snapshot, encode, load_policy, raw
from pipeline import prune
from service.cli import main
from service.keys import BODY_FIELD, Keys

SECRET = "the-secret-word"

pytestmark = pytest.mark.usefixtures("no_settings")

Captured = pytest.CaptureFixture[str]


def add_result(client: "redis.Redis", name: str, lane: str = "main") -> None:
    message = raw({"role": "user", "content": SECRET})
    result = prune(Snapshot(name, [message]), load_policy(""))
    client.xadd(Keys(lane).pruned, {BODY_FIELD: encode(result)})


def lines(captured: Captured) -> list[str]:
    return captured.readouterr().out.splitlines()


def test_from_start_prints_what_is_there_oldest_first(client: "redis.Redis", capsys: Captured) -> None:
    for name in ("c-1", "c-2", "c-3"):
        add_result(client, name)

    assert main(["tail", "--from-start", "--count", "2"]) == 0
    assert [line.split()[:2] for line in lines(capsys)] == [["c-1", "unchanged"], ["c-2", "unchanged"]]


def test_a_line_never_holds_conversation_text(client: "redis.Redis", capsys: Captured) -> None:
    add_result(client, "c-1")

    assert main(["tail", "--from-start", "--count", "1"]) == 0
    (line,) = lines(capsys)
    assert "messages 1->1" in line
    assert SECRET not in line


def test_json_prints_the_result_as_it_is(client: "redis.Redis", capsys: Captured) -> None:
    add_result(client, "c-1")

    assert main(["tail", "--from-start", "--count", "1", "--json"]) == 0
    result: dict[str, Any] = json.loads(lines(capsys)[0])
    assert result["messages"] == [{"role": "user", "content": SECRET}]


def test_a_large_result_is_fetched_from_its_blob(client: "redis.Redis", capsys: Captured) -> None:
    add_result(client, "c-1")
    entries: Any = client.xrange(Keys("main").pruned)
    client.set(Keys("main").blob("1-1"), entries[0][1][BODY_FIELD])
    client.delete(Keys("main").pruned)
    for blob in ("1-1", "2-2"):
        client.xadd(Keys("main").pruned, {"snapshot_id": "s", "blob": Keys("main").blob(blob)})

    assert main(["tail", "--from-start", "--count", "2"]) == 0
    there, gone = lines(capsys)
    assert there.startswith("c-1  unchanged  messages 1->1")
    assert gone == "(not a result)"


def test_only_the_chosen_lane_is_followed(client: "redis.Redis", capsys: Captured) -> None:
    add_result(client, "elsewhere")
    add_result(client, "here", lane="night")

    assert main(["tail", "--lane", "night", "--from-start", "--count", "1"]) == 0
    assert [line.split()[0] for line in lines(capsys)] == ["here"]


def test_without_from_start_only_new_results_are_shown(client: "redis.Redis", capsys: Captured) -> None:
    add_result(client, "old")
    stop = threading.Event()

    def keep_adding() -> None:
        while not stop.wait(0.05):
            add_result(client, "new")

    adding = threading.Thread(target=keep_adding)
    adding.start()
    try:
        assert main(["tail", "--count", "2"]) == 0
    finally:
        stop.set()
        adding.join()

    assert [line.split()[0] for line in lines(capsys)] == ["new", "new"]


def test_an_entry_that_is_no_result_is_said_to_be_none(client: "redis.Redis", capsys: Captured) -> None:
    client.xadd(Keys("main").pruned, {BODY_FIELD: b"nonsense"})
    client.xadd(Keys("main").pruned, {"other": b"field"})

    assert main(["tail", "--from-start", "--count", "2"]) == 0
    assert lines(capsys) == ["(not a result)"] * 2


def test_a_name_cannot_play_tricks_on_the_terminal(client: "redis.Redis", capsys: Captured) -> None:
    add_result(client, "c\x1b[2J\n1\u202e2")

    assert main(["tail", "--from-start", "--count", "1"]) == 0
    (line,) = lines(capsys)
    assert not {"\x1b", "\u202e"} & set(line)


def test_without_any_server_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("SECATEUR_DATA_DIR", str(tmp_path))
    begun = time.monotonic()

    assert main(["tail"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "secateur worker" in err
    assert time.monotonic() - begun < 5
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_seen_enough_ends_it(client: "redis.Redis") -> None:
    add_result(client, "c-1")
    command = [sys.executable, "-m", "service.cli", "tail", "--from-start"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline().startswith(b"c-1")
        tail.stdout.close()

        assert tail.wait(timeout=30) == 141

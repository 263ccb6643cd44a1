"""``secateur publish``: every good document becomes one stream entry, every other one a line with its place."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from service.cli import main
from service.cli.connect import shown
from service.cli.publish import Ready, Sender, Sent, prepare
from service.cli.records import Record
from service.entry import find_body
from service.keys import BODY_FIELD, Keys
from service.settings import load_settings
from tests.faults.server import Server, running_server

pytestmark = pytest.mark.usefixtures("no_settings")

Captured = pytest.CaptureFixture[str]


def snapshot(name: str, **fields: Any) -> dict[str, Any]:
    return {"conversation_id": name, "messages": [{"role": "user", "content": "hello"}]} | fields


def write(path: Path, *documents: Any) -> str:
    lines = [document if isinstance(document, str) else json.dumps(document) for document in documents]
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def bodies(client: "redis.Redis", stream: str) -> list[dict[str, Any]]:
    entries: Any = client.xrange(stream)
    return [json.loads(fields[BODY_FIELD]) for _, fields in entries]


def test_each_line_becomes_one_entry_in_order(client: "redis.Redis", tmp_path: Path, capsys: Captured) -> None:
    file = write(tmp_path / "in.jsonl", *(snapshot(f"c-{number}") for number in range(450)))

    assert main(["publish", file]) == 0
    names = [body["conversation_id"] for body in bodies(client, Keys("main").snapshots)]
    assert names == [f"c-{number}" for number in range(450)]
    assert "450 added to {main}:snapshots, 0 refused" in capsys.readouterr().err


def test_a_document_over_several_lines_is_one_entry(client: "redis.Redis", tmp_path: Path) -> None:
    file = write(tmp_path / "in.json", json.dumps(snapshot("c-1"), indent=2))

    assert main(["publish", file]) == 0
    assert [body["conversation_id"] for body in bodies(client, Keys("main").snapshots)] == ["c-1"]


def test_a_bare_array_becomes_a_snapshot_named_after_its_file(client: "redis.Redis", tmp_path: Path) -> None:
    file = write(tmp_path / "chat.json", [{"role": "user", "content": "hello"}])

    assert main(["publish", file]) == 0
    assert bodies(client, Keys("main").snapshots) == [snapshot("chat")]


def test_batch_goes_to_the_batch_stream_of_the_lane(client: "redis.Redis", tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", snapshot("c-1"))

    assert main(["publish", "--batch", "--lane", "night", file]) == 0
    assert len(bodies(client, Keys("night").batch)) == 1
    assert client.exists(Keys("night").snapshots, Keys("main").batch) == 0


def test_the_policy_option_is_put_into_every_snapshot(client: "redis.Redis", tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", snapshot("c-1"), snapshot("c-2", policy="beskar"))

    assert main(["publish", "--policy", '{"preset":"beskar"}', file]) == 0
    assert [body["policy"] for body in bodies(client, Keys("main").snapshots)] == [{"preset": "beskar"}] * 2


def test_what_a_worker_would_refuse_is_named_and_left_out(
    client: "redis.Redis", tmp_path: Path, capsys: Captured
) -> None:
    file = write(tmp_path / "in.jsonl", snapshot("c-1"), "nonsense", {"conversation_id": "c-2"}, snapshot("c-3"))

    assert main(["publish", file]) == 2
    assert [body["conversation_id"] for body in bodies(client, Keys("main").snapshots)] == ["c-1", "c-3"]
    first, second, summary = capsys.readouterr().err.splitlines()
    assert f"{file}:2: not_json" in first
    assert f"{file}:3: wrong_shape" in second
    assert "2 added" in summary
    assert "2 refused" in summary


def test_a_policy_that_no_worker_knows_is_refused_too(client: "redis.Redis", tmp_path: Path, capsys: Captured) -> None:
    file = write(tmp_path / "in.jsonl", snapshot("c-1", policy="lavish"), snapshot("c-2", policy={"prnue": {}}))

    assert main(["publish", file]) == 2
    assert client.xlen(Keys("main").snapshots) == 0
    first, second, _ = capsys.readouterr().err.splitlines()
    assert f"{file}:1: unknown_policy" in first
    assert f"{file}:2: bad_policy" in second

    assert main(["publish", file, "--policy", "beskar"]) == 0


def test_the_size_limit_is_the_workers(
    client: "redis.Redis", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    lines = write(tmp_path / "in.jsonl", snapshot("c-1"), snapshot("c-2", metadata="x" * 300), snapshot("c-3"))
    document = write(tmp_path / "in.json", json.dumps(snapshot("c-4", metadata="x" * 300), indent=2))
    monkeypatch.setenv("SECATEUR_MAX_BODY_BYTES", "200")

    assert main(["publish", lines, document]) == 2
    assert [body["conversation_id"] for body in bodies(client, Keys("main").snapshots)] == ["c-1", "c-3"]
    first, second, _ = capsys.readouterr().err.splitlines()
    assert f"{lines}:2: too_large: over the limit of 200 bytes" in first
    assert f"{document}:1: too_large" in second


def test_a_missing_file_stops_everything_before_the_first_entry(
    client: "redis.Redis", tmp_path: Path, capsys: Captured
) -> None:
    file = write(tmp_path / "in.jsonl", snapshot("c-1"))

    assert main(["publish", file, str(tmp_path / "missing.jsonl")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert client.dbsize() == 0


def test_a_server_that_stays_away_is_waited_for_and_named_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("SECATEUR_REDIS_URL", "redis://:hush@127.0.0.1:1/0")
    began = time.monotonic()

    assert main(["publish", "--patience", "1", write(tmp_path / "in.jsonl", snapshot("c-1"))]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert 1 <= time.monotonic() - began < 10
    assert "waiting up to 1 s for the server at redis://127.0.0.1:1/0" in first
    assert "the server at redis://127.0.0.1:1/0: waited 1 s" in second
    assert "hush" not in first + second


def test_a_server_that_comes_late_gets_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    server = Server(tmp_path / "server")
    monkeypatch.setenv("SECATEUR_REDIS_URL", server.url)
    start = threading.Timer(0.5, server.start)
    start.start()
    try:
        assert main(["publish", write(tmp_path / "in.jsonl", snapshot("c-1"))]) == 0
        start.join()
        with server.client() as client:
            assert client.xlen(Keys("main").snapshots) == 1
    finally:
        start.join()
        server.kill()
    assert "1 added" in capsys.readouterr().err


def test_a_wrong_password_is_not_waited_for(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("SECATEUR_REDIS_URL", f"redis://nobody:hush@{redis_url.rpartition('@')[2]}")

    assert main(["publish", write(tmp_path / "in.jsonl", snapshot("c-1"))]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "invalid username-password" in line


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", "redis://"),
        ("redis:///3", "redis:///3"),
        ("redis://:hush@", "redis://"),
        ("rediss://me:hush@host:1/0?ssl_ca_path=/hush", "rediss://host:1/0"),
        ("unix:///run/redis.sock?password=hush", "unix:///run/redis.sock"),
        ("unix://me:hush@/run/redis.sock", "unix:///run/redis.sock"),
    ],
)
def test_a_url_is_shown_as_it_was_written_but_for_its_secrets(url: str, expected: str) -> None:
    assert shown(url) == expected


def test_a_misspelt_setting_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setenv("SECATEUR_REDIS_URI", "redis://127.0.0.1")

    assert main(["publish", write(tmp_path / "in.jsonl", snapshot("c-1"))]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "did you mean SECATEUR_REDIS_URL?" in err


def test_publishing_the_same_file_again_adds_nothing(client: "redis.Redis", tmp_path: Path, capsys: Captured) -> None:
    file = write(tmp_path / "in.jsonl", *(snapshot("c-1", snapshot_id=f"s-{number}") for number in range(250)))

    assert [main(["publish", file]) for _ in range(2)] == [0, 0]
    assert len(bodies(client, Keys("main").snapshots)) == 250
    first, second = capsys.readouterr().err.splitlines()
    assert "250 added to {main}:snapshots, 0 refused" in first
    assert "0 added to {main}:snapshots, 250 known already, 0 refused" in second


def test_an_id_that_stands_for_another_array_is_reported_with_its_line(
    client: "redis.Redis", tmp_path: Path, capsys: Captured
) -> None:
    other = snapshot("c-1", snapshot_id="s-1", messages=[{"role": "user", "content": "CANARY"}])
    file = write(tmp_path / "in.jsonl", snapshot("c-1", snapshot_id="s-1"), other, snapshot("c-1", snapshot_id="s-1"))

    assert main(["publish", file]) == 2
    assert len(bodies(client, Keys("main").snapshots)) == 1
    report, total = capsys.readouterr().err.splitlines()
    assert report.startswith(f"secateur publish: {file}:2: other_array: ")
    assert "CANARY" not in report
    assert "1 added to {main}:snapshots, 1 known already, 1 refused" in total


def test_a_full_stream_is_waited_for_until_patience_ends(
    client: "redis.Redis", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("SECATEUR_ADMIT_ENTRIES", "3")
    file = write(tmp_path / "in.jsonl", *(snapshot("c-1", snapshot_id=f"s-{number}") for number in range(5)))

    assert main(["publish", "--patience", "1", file]) == 2
    assert len(bodies(client, Keys("main").snapshots)) == 3
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "lane_full: 3 entries, the limit is 3" in err


def test_publishing_goes_on_when_there_is_room_again(
    client: "redis.Redis", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECATEUR_ADMIT_ENTRIES", "3")
    taken: list[str] = []
    file = write(tmp_path / "in.jsonl", *(snapshot(f"c-{number}") for number in range(10)))

    def take_one_at_a_time() -> None:
        while len(taken) < 10:
            entries: Any = client.xrange(Keys("main").snapshots, count=1)
            taken.extend(json.loads(fields[BODY_FIELD])["conversation_id"] for _, fields in entries)
            client.xdel(Keys("main").snapshots, *([entry_id for entry_id, _ in entries] or [b"0-1"]))

    taking = threading.Thread(target=take_one_at_a_time, daemon=True)
    taking.start()
    assert main(["publish", file]) == 0
    taking.join(30)

    assert sorted(taken) == [f"c-{number}" for number in range(10)]


@pytest.mark.parametrize("fields", [{}, {"snapshot_id": "s-1"}], ids=["without an id", "with an id"])
def test_a_lost_reply_is_asked_for_again_and_nothing_is_added_twice(
    fields: dict[str, Any], client: "redis.Redis", redis_url: str
) -> None:
    stream = Keys("main").snapshots
    record = Record("in.jsonl", 1, "c-1", json.dumps(snapshot("c-1", **fields)).encode())
    ready = prepare(record, None)
    assert isinstance(ready, Ready)
    sender = Sender(client, Keys("main"), load_settings({}), stream, 5, is_packing=False)
    ask = sender._ask

    def lose_first_reply(admissions: list[Any]) -> list[Any]:
        sender._ask = ask  # type: ignore[method-assign]
        return [redis.ConnectionError("gone") for _ in ask(admissions)]

    sender._ask = lose_first_reply  # type: ignore[method-assign]

    assert list(sender.send([ready])) == [Sent(0, 0, []), Sent(0, 1, [])]
    assert client.xlen(stream) == 1


def test_large_bodies_are_packed_on_request_and_read_by_the_worker(client: "redis.Redis", tmp_path: Path) -> None:
    large = snapshot("c-1", messages=[{"role": "user", "content": "words " * 5_000}])
    file = write(tmp_path / "in.jsonl", large, snapshot("c-2"))

    assert main(["publish", "--zstd", file]) == 0
    entries: Any = client.xrange(Keys("main").snapshots)
    (_, packed), (_, plain) = entries
    assert packed[b"enc"] == b"zstd"
    assert len(packed[BODY_FIELD]) < 1_000
    assert plain.keys() == {BODY_FIELD}
    flat = [part for pair in packed.items() for part in pair]
    assert json.loads(find_body(flat, 100_000)) == large


def test_in_replicated_mode_a_snapshot_counts_once_a_replica_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("SECATEUR_DURABILITY", "replicated")
    file = write(tmp_path / "in.jsonl", snapshot("c-1", snapshot_id="s-1"))
    with (
        running_server(tmp_path / "first") as first,
        running_server(tmp_path / "second", replicaof=f"127.0.0.1 {first.port}") as second,
    ):
        monkeypatch.setenv("SECATEUR_REDIS_URL", first.url)
        assert main(["publish", file]) == 0
        with second.client() as replica:
            assert replica.xlen(Keys("main").snapshots) == 1
        second.kill()
        capsys.readouterr()

        assert main(["publish", "--patience", "1", write(tmp_path / "more.jsonl", snapshot("c-2"))]) == 2
        err = capsys.readouterr().err
        assert "no replica has confirmed it" in err
        assert err.count("\n") == 1

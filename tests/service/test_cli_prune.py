"""``secateur prune``: a good conversation gives one result, a bad one gives one line and exit code 2."""

import gzip
import io
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from contracts import MAX_BODY_BYTES, Pruned
from service.cli import main

HELLO = '[{"role":"user","content":"hello"}]'
SECRET = "the-secret-word"
LAST_TURN_ONLY = '{"prune":{"strategy":"sliding_window","max_turns":1}}'

BAD_BODIES = {
    "not_json": (b"hello", "not_json"),
    "cut_off": (b'{"conversation_id":"c","messages":[', "not_json"),
    "cut_off_array": (b'[{"role":"user"', "not_json"),
    "two_documents": (HELLO.encode() * 2, "not_json"),
    "number": (b"7", "wrong_shape"),
    "text": (b'"hello"', "wrong_shape"),
    "null": (b"null", "wrong_shape"),
    "no_messages": (b'{"conversation_id":"c"}', "wrong_shape"),
    "messages_not_an_array": (b'{"conversation_id":"c","messages":7}', "wrong_shape"),
    "messages_not_objects": (b"[1, 2]", "unknown_format"),
    "bad_conversation_id": (b'{"conversation_id":"","messages":[]}', "bad_conversation_id"),
    "negative_sequence": (b'{"conversation_id":"c","messages":[],"sequence":-1}', "out_of_range"),
    "unknown_format": (b'{"conversation_id":"c","messages":[],"format":"morse"}', "unknown_format"),
    "unknown_policy": (b'{"conversation_id":"c","messages":[],"policy":"lavish"}', "unknown_policy"),
    "misspelt_policy_field": (b'{"conversation_id":"c","messages":[],"policy":{"prun":{}}}', "bad_policy"),
    "too_deep_array": (b"[" * 100_000 + b"]" * 100_000, "too_deep"),
    "too_deep_content": (b'[{"role":"user","content":' + b"[" * 5_000 + b"]" * 5_000 + b"}]", "too_deep"),
    "too_deep_object": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "too_deep"),
    "not_utf8": (b'[{"role":"user","content":"\xff\xfe"}]', "not_utf8"),
    "lone_surrogate_bytes": (b'[{"role":"user","content":"\xed\xa0\x80"}]', "not_utf8"),
    "empty": (b"", "empty_body"),
    "blank": (b" \n\t ", ""),
    "broken_gzip": (gzip.compress(HELLO.encode())[:-9], "bad_encoding"),
    "corrupt_gzip": (gzip.compress(HELLO.encode())[:10] + b"\xff" * 20, "bad_encoding"),
    "broken_xz": (lzma.compress(HELLO.encode())[:-9], "bad_encoding"),
}
BAD_OPTIONS = {
    "unknown_format": (["--format", "morse"], "unknown_format"),
    "unknown_policy": (["--policy", "lavish"], "unknown_policy"),
    "misspelt_policy_field": (["--policy", '{"prun":{}}'], "bad_policy"),
    "policy_not_json": (["--policy", "{"], "bad_policy"),
    "policy_too_deep": (["--policy", '{"a":' * 50_000], "bad_policy"),
    "missing_policy_file": (["--policy", "no/such.json"], "no/such.json"),
    "unknown_option": (["--fast"], "--fast"),
}

Captured = pytest.CaptureFixture[str]


def give_stdin(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    buffer = io.BufferedReader(io.BytesIO(body))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(buffer))


def the_one_line(captured: Captured) -> str:
    out, err = captured.readouterr()

    assert out == ""
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def the_one_result(captured: Captured) -> Pruned:
    out, err = captured.readouterr()

    assert err == ""
    assert out.endswith("\n")
    assert out.count("\n") == 1
    return msgspec.json.decode(out, type=Pruned)


def run_secateur(*arguments: str, stdin: bytes = b"", **environ: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-P", "-m", "service.cli", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, env={**os.environ, **environ}, check=False)


@pytest.mark.parametrize(("body", "code"), BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_bad_body_is_refused_in_one_line(body: bytes, code: str, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "bad.json"
    file.write_bytes(body)

    assert main(["prune", str(file)]) == 2
    assert code in the_one_line(capsys)


@pytest.mark.parametrize(("body", "code"), BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_bad_body_on_standard_input_is_refused_in_one_line(
    body: bytes, code: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    give_stdin(monkeypatch, body)

    assert main(["prune", "-"]) == 2
    assert code in the_one_line(capsys)


def test_a_body_over_the_limit_is_refused(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "large.json"
    with file.open("wb") as large:
        large.truncate(MAX_BODY_BYTES + 1)

    assert main(["prune", str(file)]) == 2
    assert "too_large" in the_one_line(capsys)


def test_a_small_file_that_unpacks_beyond_the_limit_is_refused(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "bomb.json.gz"
    file.write_bytes(gzip.compress(b" " * (MAX_BODY_BYTES + 1), 1))

    assert main(["prune", str(file)]) == 2
    assert "too_large" in the_one_line(capsys)


@pytest.mark.parametrize(("options", "word"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_a_bad_option_is_refused_in_one_line(
    options: list[str], word: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    give_stdin(monkeypatch, HELLO.encode())

    try:
        code: object = main(["prune", *options, "-"])
    except SystemExit as end:  # how argparse ends
        code = end.code

    assert code == 2
    assert word in the_one_line(capsys)


def test_a_missing_file_is_named(tmp_path: Path, capsys: Captured) -> None:
    assert main(["prune", str(tmp_path / "missing.json")]) == 2
    assert "missing.json: No such file" in the_one_line(capsys)


def test_a_directory_is_named(tmp_path: Path, capsys: Captured) -> None:
    assert main(["prune", str(tmp_path)]) == 2
    assert f"{tmp_path}: Is a directory" in the_one_line(capsys)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(f'[{{"role":"user","content":"{SECRET}"', id="not_json"),
        pytest.param(f'["{SECRET}"]', id="wrong_shape"),
        pytest.param(f'{{"conversation_id":"c","messages":"{SECRET}"}}', id="wrong_type"),
    ],
)
def test_a_refusal_never_quotes_the_conversation(body: str, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "bad.json"
    file.write_text(body)

    assert main(["prune", str(file)]) == 2
    assert SECRET not in the_one_line(capsys)


def test_a_bare_array_gives_one_result(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    give_stdin(monkeypatch, HELLO.encode())

    assert main(["prune"]) == 0
    result = the_one_result(capsys)
    assert result.status == "unchanged"
    assert msgspec.json.encode(result.messages).decode() == HELLO


def test_a_bare_array_is_named_after_its_file(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "chat-7.json"
    file.write_text(HELLO)

    assert main(["prune", str(file)]) == 0
    assert the_one_result(capsys).conversation_id == "chat-7"


def test_a_snapshot_gives_one_result_by_its_own_policy(tmp_path: Path, capsys: Captured) -> None:
    turns = [{"role": "user", "content": str(number)} for number in range(4)]
    snapshot = {"conversation_id": "c-1", "messages": turns, "policy": json.loads(LAST_TURN_ONLY)}
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps(snapshot))

    assert main(["prune", str(file)]) == 0
    result = the_one_result(capsys)
    assert result.conversation_id == "c-1"
    assert result.status == "pruned"
    assert result.edits


def test_a_policy_option_takes_the_place_of_the_snapshots_own(tmp_path: Path, capsys: Captured) -> None:
    snapshot = {"conversation_id": "c-1", "messages": json.loads(HELLO), "policy": "lavish"}
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps(snapshot))

    assert main(["prune", "--policy", "beskar", str(file)]) == 0
    assert the_one_result(capsys).policy.name == "beskar"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress], ids=["gz", "xz"])
def test_a_packed_file_is_unpacked(pack: Callable[[bytes], bytes], tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "chat.json.packed"
    file.write_bytes(pack(HELLO.encode()))

    assert main(["prune", str(file)]) == 0
    assert the_one_result(capsys).status == "unchanged"


def test_explain_shows_what_happened_to_each_message(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "chat.json"
    file.write_text(json.dumps([{"role": "user", "content": f"turn {number}"} for number in range(3)]))

    assert main(["prune", "--explain", "--policy", LAST_TURN_ONLY, str(file)]) == 0
    out = capsys.readouterr().out
    assert "chat: pruned" in out
    assert "messages 3 ->" in out


def test_the_process_exits_with_2_and_one_line_for_empty_standard_input() -> None:
    done = run_secateur("prune")

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"secateur prune: empty_body: The body is empty.\n"


def test_the_process_prints_the_result_and_exits_with_0() -> None:
    done = run_secateur("prune", "-", stdin=HELLO.encode())

    assert (done.returncode, done.stderr) == (0, b"")
    assert msgspec.json.decode(done.stdout, type=Pruned).status == "unchanged"


def test_no_server_setting_matters_to_prune() -> None:
    done = run_secateur("prune", stdin=HELLO.encode(), SECATEUR_NO_SUCH="x", SECATEUR_REDIS_URL="redis://nowhere")

    assert done.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_full_disk_is_told_in_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "service.cli", "prune"],
            input=HELLO.encode(),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert done.returncode == 2
    assert done.stderr == b"secateur prune: No space left on device\n"


@pytest.mark.parametrize("command", ["demo", "worker", "prune", "publish", "tail", "reprocess", "schema"])
def test_every_command_has_help_with_an_example(command: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])

    assert end.value.code == 0
    assert f"secateur {command}" in capsys.readouterr().out.partition("example:\n")[2]

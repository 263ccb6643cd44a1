"""``secateur reprocess``: results in the order of the lines, refused lines with where they stand, whole files only."""

import gzip
import json
import lzma
import os
from pathlib import Path
from typing import Any

import pytest

from service.cli import main

Captured = pytest.CaptureFixture[str]


def snapshot_line(name: str, **fields: Any) -> str:
    return json.dumps({"conversation_id": name, "messages": [{"role": "user", "content": "hello"}]} | fields) + "\n"


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(lines))
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def names(path: Path) -> list[str]:
    return [row["conversation_id"] for row in rows(path)]


def reprocess(*arguments: "str | Path", jobs: int = 1) -> int:
    return main(["reprocess", "--jobs", str(jobs), *map(str, arguments)])


def test_results_keep_the_order_of_files_and_lines_on_several_processes(tmp_path: Path) -> None:
    wanted = [[f"{letter}-{number}" for number in range(200)] for letter in "ba"]
    files = [write(tmp_path / f"{group[0]}.jsonl", *map(snapshot_line, group)) for group in wanted]
    out = tmp_path / "out.jsonl"

    assert reprocess(*files, "--out", out, jobs=3) == 0
    assert names(out) == [name for group in wanted for name in group]


def test_good_lines_are_written_although_others_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", snapshot_line("a"), "nonsense\n", "\n", "7\n", snapshot_line("b"))
    out = tmp_path / "out.jsonl"

    assert reprocess(file, "--out", out) == 2
    assert names(out) == ["a", "b"]


def test_a_refused_line_is_named_with_file_line_and_code(tmp_path: Path, capsys: Captured) -> None:
    first = write(tmp_path / "first.jsonl", snapshot_line("a"), "\n", "nonsense\n")
    second = write(tmp_path / "second.jsonl", snapshot_line("b", policy="lavish"), snapshot_line("c"))

    assert reprocess(first, second, "--out", tmp_path / "out.jsonl") == 2
    rejects = rows(tmp_path / "out.rejects.jsonl")
    assert [(row["file"], row["line"], row["code"]) for row in rejects] == [
        (str(first), 3, "not_json"),
        (str(second), 1, "unknown_policy"),
    ]
    assert "out.rejects.jsonl" in capsys.readouterr().err


def test_the_rejects_file_can_be_chosen(tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", "nonsense\n")

    assert reprocess(file, "--out", tmp_path / "out.jsonl", "--rejects", tmp_path / "bad.jsonl") == 2
    assert [row["line"] for row in rows(tmp_path / "bad.jsonl")] == [1]


def test_nothing_refused_leaves_an_empty_rejects_file_and_exit_code_0(tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", snapshot_line("a"))

    assert reprocess(file, "--out", tmp_path / "out.jsonl") == 0
    assert (tmp_path / "out.rejects.jsonl").read_bytes() == b""


@pytest.mark.parametrize(("pack", "suffix"), [(lzma.compress, "xz"), (gzip.compress, "gz")], ids=["xz", "gz"])
def test_packed_files_are_unpacked(pack: Any, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"in.jsonl.{suffix}"
    file.write_bytes(pack((snapshot_line("a") + snapshot_line("b")).encode()))

    assert reprocess(file, "--out", tmp_path / "out.jsonl") == 0
    assert names(tmp_path / "out.jsonl") == ["a", "b"]


@pytest.mark.parametrize(("pack", "suffix"), [(lzma.compress, "xz"), (gzip.compress, "gz")], ids=["xz", "gz"])
def test_a_packed_file_that_is_cut_off_is_a_reject_and_the_next_file_is_read(
    pack: Any, suffix: str, tmp_path: Path
) -> None:
    broken = tmp_path / f"in.jsonl.{suffix}"
    broken.write_bytes(pack(snapshot_line("a").encode())[:-6])
    whole = write(tmp_path / "whole.jsonl", snapshot_line("b"))

    assert reprocess(broken, whole, "--out", tmp_path / "out.jsonl") == 2
    assert names(tmp_path / "out.jsonl")[-1] == "b"
    assert [row["code"] for row in rows(tmp_path / "out.rejects.jsonl")] == ["bad_encoding"]


def test_a_bare_array_is_named_after_its_file_and_line(tmp_path: Path) -> None:
    array = '[{"role":"user","content":"hello"}]\n'
    file = write(tmp_path / "chats.jsonl", array, array)

    assert reprocess(file, "--out", tmp_path / "out.jsonl") == 0
    assert names(tmp_path / "out.jsonl") == ["chats:1", "chats:2"]


def test_the_policy_option_holds_for_every_line(tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", snapshot_line("a"), snapshot_line("b", policy="lavish"))

    assert reprocess(file, "--out", tmp_path / "out.jsonl", "--policy", "beskar") == 0
    assert {row["policy"]["name"] for row in rows(tmp_path / "out.jsonl")} == {"beskar"}


@pytest.mark.parametrize("arguments", [["missing.jsonl"], ["."], ["in.jsonl", "--policy", "lavish"]])
def test_a_mistake_is_one_line_and_no_output_file(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in.jsonl", snapshot_line("a"))

    assert reprocess(*arguments, "--out", "out.jsonl") == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize("out", ["", ".", "/", "/dev/null"])
def test_an_output_that_has_no_name_for_its_rejects_is_one_line(out: str, tmp_path: Path, capsys: Captured) -> None:
    file = write(tmp_path / "in.jsonl", snapshot_line("a"))

    assert reprocess(file, "--out", out) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_results_can_go_into_a_pipe(tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", snapshot_line("a"), "nonsense\n")
    reading, writing = os.pipe()

    assert reprocess(file, "--out", f"/dev/fd/{writing}", "--rejects", tmp_path / "bad.jsonl") == 2
    os.close(writing)
    with open(reading, "rb") as piped:
        assert json.loads(piped.read())["conversation_id"] == "a"
    assert [row["line"] for row in rows(tmp_path / "bad.jsonl")] == [2]


def test_an_input_is_never_overwritten(tmp_path: Path, capsys: Captured) -> None:
    file = write(tmp_path / "in.jsonl", snapshot_line("a"))

    assert reprocess(file, "--out", file) == 2
    assert "named twice" in capsys.readouterr().err
    assert names(file) == ["a"]

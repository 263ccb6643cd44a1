"""Seed 004, statement by statement: zones, constants and stop rules of lazy masking."""

from typing import Any

import pytest

from tests.pipeline.arrays import assistant, calls, plain, results, run, user


def output(number: int, tokens: int, name: str = "read") -> list[dict[str, Any]]:
    return [calls(f"t{number}", name=name), results(f"t{number}", text="x" * (tokens * 4))]


ACTIVE = [user("edit main.go"), assistant("done"), user("fix the bug")]


def masked(messages: list[dict[str, Any]], **mask: Any) -> list[int]:
    """The positions whose outputs were masked."""
    policy = {"preset": "opencode", "compress": {"mask": mask}} if mask else "opencode"
    return [edit.position for edit in run(messages, policy).edits]


def test_outputs_beyond_the_protected_tokens_are_masked_oldest_side_first() -> None:
    messages = [user("go"), *output(1, 25_000), *output(2, 30_000), *output(3, 15_000), *ACTIVE]

    assert masked(messages) == [2, 4]


def test_the_content_becomes_compacted_and_the_structure_stays() -> None:
    messages = [user("go"), *output(1, 25_000), *output(2, 40_000), *ACTIVE]

    kept = plain(run(messages, "opencode"))

    assert kept[2] == results("t1", text="[compacted]")
    assert kept[1] == messages[1]
    assert kept[3:] == messages[3:]


def test_the_last_two_user_turns_are_active_and_skipped() -> None:
    messages = [user("go"), user("again"), *output(1, 90_000), user("now")]

    assert masked(messages) == []


def test_every_user_message_is_a_turn_whatever_its_parts() -> None:
    def tool(tokens: int) -> dict[str, Any]:
        state = {"status": "completed", "input": {}, "output": "x" * (tokens * 4), "time": {"start": 1, "end": 2}}
        part = {"type": "tool", "callID": "c", "tool": "read", "state": state}
        return {"info": {"role": "assistant"}, "parts": [part]}

    asked = {"info": {"role": "user"}, "parts": [{"type": "text", "text": "go"}]}
    bare = {"info": {"role": "user"}, "parts": []}
    messages = [asked, tool(25_000), tool(40_000), bare, asked]

    assert [edit.position for edit in run(messages, "opencode", "opencode").edits] == [1]


@pytest.mark.parametrize(("tokens", "expected"), [(19_999, []), (20_000, [2])])
def test_nothing_is_committed_below_the_minimum(tokens: int, expected: list[int]) -> None:
    messages = [user("go"), *output(1, tokens), *output(2, 40_000), *ACTIVE]

    assert masked(messages) == expected


def test_skill_outputs_are_never_masked() -> None:
    messages = [user("go"), *output(1, 50_000, name="skill"), *output(2, 50_000, name="skill"), *ACTIVE]

    assert masked(messages) == []


def test_an_earlier_compaction_stops_the_walk() -> None:
    messages = [
        user("go"),
        *output(0, 90_000),
        calls("c"),
        results("c", text="[compacted]"),
        *output(1, 40_000),
        *ACTIVE,
    ]

    assert masked(messages) == []


def test_failed_results_are_never_masked() -> None:
    failed = output(1, 90_000)
    failed[1]["content"][0]["is_error"] = True

    assert masked([user("go"), *failed, *output(2, 40_000), *ACTIVE]) == []


@pytest.mark.parametrize("messages", [[], [user("only"), assistant("text")]], ids=["empty session", "no tool outputs"])
def test_nothing_to_mask_changes_nothing(messages: list[dict[str, Any]]) -> None:
    assert run(messages, "opencode").status == "unchanged"


def test_masking_is_opt_in() -> None:
    assert run([user("go"), *output(1, 90_000), *output(2, 40_000), *ACTIVE], {}).edits == []

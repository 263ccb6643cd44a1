"""Anthropic Messages: each rule of the API with an array that breaks it, and its repair; and what breaks none."""

from typing import Any

import pytest

from pipeline.notices import INTERRUPTED, RESUMED
from tests.pipeline.dialects.checks import Item, plain, repaired, rules, run

FORMAT = "anthropic"


def ask(*blocks: Any) -> Item:
    return {"role": "user", "content": list(blocks)}


def say(*blocks: Any) -> Item:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str, **more: Any) -> Item:
    return {"type": "text", "text": words, **more}


def use(call_id: Any, **more: Any) -> Item:
    return {"type": "tool_use", "id": call_id, "name": "search", "input": {}, **more}


def result(call_id: Any, content: Any = "found") -> Item:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def thinking(signature: str) -> Item:
    return {"type": "thinking", "thinking": "Let me see.", "signature": signature}


GO, DONE = ask(text("go")), say(text("done"))
MARK = {"type": "ephemeral"}

BROKEN: dict[str, tuple[list[Item], list[str], list[Item] | None]] = {
    "1 a call without its result in the next message": (
        [GO, say(use("a")), ask(text("and?"))],
        ["unanswered_call"],
        [
            GO,
            say(use("a")),
            ask({"type": "tool_result", "tool_use_id": "a", "content": INTERRUPTED, "is_error": True}),
            ask(text("and?")),
        ],
    ),
    "2 a result without a call": ([GO, DONE, ask(result("a"), text("and?"))], ["unmatched_result"], None),
    "2 a result that is not in the next message": (
        [GO, say(use("a")), ask(text("wait")), DONE, ask(result("a")), DONE],
        ["unanswered_call", "unmatched_result"],
        [GO, say(use("a")), ask(result("a")), ask(text("wait")), DONE, DONE],
    ),
    "2 an array that starts with a result": ([ask(result("a")), DONE, GO], ["unmatched_result"], None),
    "3 two results for a call": (
        [GO, say(use("a")), ask(result("a"), result("a", "again"))],
        ["duplicate_result"],
        [GO, say(use("a")), ask(result("a"))],
    ),
    "4 an id used twice": (
        [GO, say(use("a")), ask(result("a")), say(use("a")), ask(result("a"))],
        ["duplicate_call_id"],
        [GO, say(use("a")), ask(result("a")), say(use("a_1")), ask(result("a_1"))],
    ),
    "5 an id with other characters": (
        [GO, say(use("a.b:1")), ask(result("a.b:1"))],
        ["bad_id", "bad_id"],
        [GO, say(use("a_b_1")), ask(result("a_b_1"))],
    ),
    "5 ids that are null": (
        [GO, say(use(None)), ask(result(None))],
        ["bad_id", "bad_id"],
        [GO, say(use("call_0")), ask(result("call_0"))],
    ),
    "6 text before a result": (
        [GO, say(use("a")), ask(text("here"), result("a"))],
        ["result_after_text"],
        [GO, say(use("a")), ask(result("a"), text("here"))],
    ),
    "7 the assistant speaks first": (
        [DONE, GO],
        ["first_role"],
        [{"role": "user", "content": RESUMED}, DONE, GO],
    ),
    "8 an empty text block": ([ask(text("go"), text("")), DONE], ["empty_content"], [GO, DONE]),
    "8 empty content": ([GO, DONE, ask(), DONE], ["empty_content"], [GO, DONE, DONE]),
    "8 content that is only blank": (
        [GO, say(text("\n\n")), ask(text("and?"))],
        ["empty_content"],
        [GO, ask(text("and?"))],
    ),
    "8 no content": ([GO, {"role": "user"}, DONE], ["empty_content"], [GO, DONE]),
    "8 whitespace at the end of a final assistant message": (
        [GO, say(text("done \n"))],
        ["trailing_whitespace"],
        [GO, DONE],
    ),
    "9 more than four cache marks": (
        [ask(text(f"{i}", cache_control=MARK)) for i in range(6)],
        ["cache_marks", "cache_marks"],
        [ask(text(f"{i}") if i < 2 else text(f"{i}", cache_control=MARK)) for i in range(6)],
    ),
    "10 thinking that is not first in the turn being continued": (
        [GO, say(use("a"), thinking("s"), use("b")), ask(result("a"), result("b"))],
        ["thinking_not_first"],
        [GO, say(use("a"), thinking("s"), use("b")), ask(result("a"), result("b"))],
    ),
    "a call of the user": ([GO, ask(use("a")), ask(result("a"))], ["call_role", "result_after_text"], None),
    "a result of the assistant": ([GO, say(use("a"), result("a"))], ["result_role"], None),
}


def cases(*columns: int) -> list[Any]:
    return [pytest.param(*(case[i] for i in columns), id=name) for name, case in BROKEN.items()]


@pytest.mark.parametrize(("items", "expected"), cases(0, 1))
def test_every_rule_has_an_id(items: list[Item], expected: list[str]) -> None:
    assert rules(items, FORMAT) == expected


@pytest.mark.parametrize(
    ("items", "expected"), [pytest.param(c[0], c[2], id=name) for name, c in BROKEN.items() if c[2] is not None]
)
def test_repair_changes_as_little_as_it_can(items: list[Item], expected: list[Item]) -> None:
    assert repaired(items, FORMAT) == expected


VALID: dict[str, list[Item]] = {
    "parallel calls answered in one message": [GO, say(use("a"), use("b")), ask(result("b"), result("a"))],
    "parallel calls answered in neighbouring messages": [
        GO,
        say(use("a"), use("b")),
        ask(result("a")),
        ask(result("b")),
    ],
    "a live step at the end": [GO, say(use("a"))],
    "text behind results": [GO, say(use("a")), ask(result("a"), text("and hurry"))],
    "consecutive messages of one role": [GO, ask(text("and")), DONE, say(text("really")), ask(text("?"))],
    "a system message in the middle": [GO, DONE, {"role": "system", "content": "Be brief."}, ask(text("and?"))],
    "blank text beside a call": [GO, say(text("\n\n"), use("a")), ask(result("a"))],
    "an empty final assistant message": [GO, say()],
    "an empty result": [GO, say(use("a")), ask(result("a", ""))],
    "a result without content": [GO, say(use("a")), ask({"type": "tool_result", "tool_use_id": "a"})],
    "a result that is an object": [GO, say(use("a")), ask(result("a", {"ok": True}))],
    "extra fields": [GO, say(use("a", caller={"type": "direct"})) | {"id": "msg_1", "usage": {}}, ask(result("a"))],
    "server tools inside the assistant message": [
        GO,
        say(
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            text("done"),
        ),
    ],
    "server tools before thinking in a turn that is over": [
        GO,
        say({"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash", "input": {}}, thinking("s"), text("done")),
        ask(text("and?")),
    ],
    "an mcp pair": [
        GO,
        say(
            {"type": "mcp_tool_use", "id": "m1", "name": "x", "server_name": "s", "input": {}},
            {"type": "mcp_tool_result", "tool_use_id": "m1", "content": []},
        ),
    ],
    "unknown blocks": [ask({"type": "tool_addition", "x": 1}, text("go")), say({"type": "tool_reference", "n": 1})],
    "four cache marks": [ask(text(f"{i}", cache_control=MARK)) for i in range(4)],
}


@pytest.mark.parametrize("items", VALID.values(), ids=list(VALID))
def test_what_the_api_accepts_is_left_alone(items: list[Item]) -> None:
    assert rules(items, FORMAT) == []
    assert plain(run(items, FORMAT, {"validate": {"input": "reject"}})) == items


def test_marks_are_outside_the_comparison_of_signed_thinking() -> None:
    marked = [ask(text(f"{i}", cache_control=MARK)) for i in range(5)]
    thought = say(thinking("s"), text("done"))

    assert plain(run([*marked, thought, GO], FORMAT))[1:] == [*marked[1:], thought, GO]


def test_a_dropped_mark_is_said() -> None:
    window = {"prune": {"strategy": "sliding_window", "max_turns": 1}}

    assert run([ask(text("go", cache_control=MARK)), DONE, GO], FORMAT, window).reason == ["cache_mark_gone"]
    assert run([GO, DONE, ask(text("go", cache_control=MARK))], FORMAT, window).reason == []

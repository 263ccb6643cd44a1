"""The functions that the seeds name, each used alone: on a plain array, or on one block."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from contracts import Refused, raw
from contracts.policy import Collapse, Compress, Importance, SlidingWindow, Summarize, TokenBudget
from pipeline import (
    collapse_tool_chains,
    compress_tool_result,
    find_tool_results_for_call,
    prune_messages,
    validate_message_sequence,
)
from tests.pipeline.arrays import assistant, calls, chat_calls, chat_result, raws, results, user

LONG = "x" * 1_000
CAPPED = "x" * 40 + "\n[truncated]"
CAP = Compress(max_tool_result_tokens=10)
ROUND = [user("go"), calls("a", name="grep"), results("a", text=LONG)]


def decoded(items: list[Raw]) -> list[Any]:
    return [msgspec.json.decode(item) for item in items]


def block(text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "a", "content": text, "is_error": False}


def opencode_part(text: str) -> dict[str, Any]:
    state = {"status": "completed", "input": {}, "output": text, "time": {"start": 1, "end": 2}}
    return {"type": "tool", "callID": "a", "tool": "read", "state": state}


BLOCKS = {
    "anthropic": block,
    "openai-chat": lambda text: chat_result("a", text),
    "openai-responses": lambda text: {"type": "function_call_output", "call_id": "a", "output": text},
    "gemini": lambda text: {"functionResponse": {"name": "read", "response": {"output": text}}},
    "opencode": opencode_part,
}


@pytest.mark.parametrize("format_name", ["named", "auto"])
@pytest.mark.parametrize("wire", BLOCKS)
def test_compress_tool_result_caps_one_block_of_any_format(wire: str, format_name: str) -> None:
    capped = compress_tool_result(raw(BLOCKS[wire](LONG)), CAP, wire if format_name == "named" else "auto")

    assert msgspec.json.decode(capped) == BLOCKS[wire](CAPPED)


def test_compress_tool_result_takes_a_whole_message_too() -> None:
    capped = compress_tool_result(raw(results("a", "b", text=LONG)), CAP)

    assert msgspec.json.decode(capped) == results("a", "b", text=CAPPED)


def test_compress_tool_result_returns_a_new_block_and_leaves_its_input() -> None:
    given = raw(block(LONG))
    before = bytes(given)

    compress_tool_result(given, CAP)

    assert bytes(given) == before


@pytest.mark.parametrize(
    ("given", "config"),
    [(block(LONG), Compress()), (block("short"), CAP), (block(CAPPED), CAP), ({"type": "text", "text": LONG}, CAP)],
    ids=["no cap", "short", "capped before", "no result"],
)
def test_compress_tool_result_gives_back_what_it_need_not_cut(given: dict[str, Any], config: Compress) -> None:
    item = raw(given)

    assert compress_tool_result(item, config) is item


def test_compress_tool_result_cuts_as_the_shape_says() -> None:
    config = Compress(max_tool_result_tokens=10, shape="head_tail")

    capped = compress_tool_result(raw(block("a" * 500 + "b" * 500)), config)

    assert msgspec.json.decode(capped)["content"].endswith("b" * 16)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(Refused, match="known: auto, anthropic"):
        compress_tool_result(raw(block(LONG)), CAP, "morse")


def test_collapse_tool_chains_folds_old_rounds() -> None:
    messages = raws([*ROUND, user("and"), assistant("on")])

    collapsed = collapse_tool_chains(messages, Collapse(after_turns=1, into="assistant"))

    said = assistant("[Tool: grep | Result summarized — called 2 turns ago]")
    assert decoded(collapsed) == [user("go"), said, user("and"), assistant("on")]


@pytest.mark.parametrize("config", [Collapse(), Collapse(after_turns=9)], ids=["unset", "not old enough"])
def test_collapse_tool_chains_leaves_the_rest_alone(config: Collapse) -> None:
    messages = raws([*ROUND, user("and"), assistant("on")])

    assert collapse_tool_chains(messages, config) == messages


def test_collapse_tool_chains_knows_every_format() -> None:
    messages = raws([user("go"), chat_calls("a", name="grep"), chat_result("a", LONG), user("and")])

    collapsed = collapse_tool_chains(messages, Collapse(after_turns=0, into="assistant"), "openai-chat")

    assert decoded(collapsed)[1] == assistant("[Tool: grep | Result summarized — called 1 turns ago]")


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        (SlidingWindow(1), [user("last")]),
        (Summarize(1), [user("[Previous context summarized: 3 turns]"), user("last")]),
        (Importance(1), [user("last")]),
        (TokenBudget(50), [user("Earlier messages have been pruned. Tool operations included: grep."), user("last")]),
    ],
    ids=["sliding_window", "summarize", "importance", "token_budget"],
)
def test_prune_messages_removes_what_the_strategy_says(config: Any, kept: list[dict[str, Any]]) -> None:
    assert decoded(prune_messages(raws([*ROUND, user("last")]), config)) == kept


def test_prune_messages_is_pure() -> None:
    messages = raws([*ROUND, user("last")])
    before = [bytes(message) for message in messages]

    first, second = (prune_messages(messages, SlidingWindow(1)) for _ in range(2))

    assert first == second
    assert [bytes(message) for message in messages] == before


def test_find_tool_results_for_call_knows_every_format() -> None:
    assert find_tool_results_for_call(raws([*ROUND, user("a")]), "a") == [2]
    assert find_tool_results_for_call(raws([user("go"), chat_calls("a"), chat_result("a")]), "a", "openai-chat") == [2]


def test_validate_message_sequence_names_each_broken_rule_and_where() -> None:
    found = validate_message_sequence(raws([user("go"), assistant("so"), results("lost")]))

    assert [(violation.rule, violation.index) for violation in found] == [("anthropic.unmatched_result", 2)]
    assert validate_message_sequence(raws(ROUND)) == []


@pytest.mark.parametrize("config", [SlidingWindow(1), Summarize(1), Importance(1), TokenBudget(1)])
def test_nothing_comes_of_nothing(config: Any) -> None:
    assert prune_messages([], config) == []
    assert collapse_tool_chains([], Collapse(after_turns=0)) == []
    assert find_tool_results_for_call([], "a") == []
    assert validate_message_sequence([]) == []

"""Chat Completions: each rule with an array that breaks it, and its repair; and what breaks none."""

from typing import Any

import pytest

from pipeline.notices import INTERRUPTED
from tests.pipeline.dialects.checks import Item, plain, repaired, rules, run

FORMAT = "openai-chat"


def say(role: str, content: Any = "words", **more: Any) -> Item:
    return {"role": role, "content": content, **more}


def call(call_id: Any, arguments: Any = "{}") -> Item:
    return {"id": call_id, "type": "function", "function": {"name": "search", "arguments": arguments}}


def use(*made: Item) -> Item:
    return say("assistant", None, tool_calls=list(made))


def result(call_id: Any, content: Any = "found") -> Item:
    return say("tool", content, tool_call_id=call_id)


GO, DONE, MORE = say("user", "go"), say("assistant", "done"), say("user", "and?")

BROKEN: dict[str, tuple[list[Item], list[str], list[Item]]] = {
    "1 a call without its result": (
        [GO, use(call("a")), MORE],
        ["unanswered_call"],
        [GO, use(call("a")), result("a", INTERRUPTED), MORE],
    ),
    "1 one of a parallel set": (
        [GO, use(call("a"), call("b")), result("b"), DONE, MORE],
        ["unanswered_call"],
        [GO, use(call("a"), call("b")), result("b"), result("a", INTERRUPTED), DONE, MORE],
    ),
    "1 another role between call and result": (
        [GO, use(call("a")), say("system", "Be brief."), result("a"), DONE],
        ["unanswered_call", "unmatched_result"],
        [GO, use(call("a")), result("a"), say("system", "Be brief."), DONE],
    ),
    "2 a result without a call": ([GO, result("a"), DONE], ["unmatched_result"], [GO, DONE]),
    "2 two results for a call": (
        [GO, use(call("a")), result("a"), result("a", "again"), DONE],
        ["duplicate_result"],
        [GO, use(call("a")), result("a"), DONE],
    ),
    "3 an empty list of calls": ([GO, DONE | {"tool_calls": []}], ["empty_tool_calls"], [GO, DONE]),
    "3 arguments that are an object": (
        [GO, use(call("a", {"q": [1, "x"]})), result("a")],
        ["arguments_not_a_string"],
        [GO, use(call("a", '{"q":[1,"x"]}')), result("a")],
    ),
    "3 arguments that are null": (
        [GO, use(call("a", None)), result("a")],
        ["arguments_not_a_string"],
        [GO, use(call("a")), result("a")],
    ),
    "3 arguments that are no text": (
        [GO, use(call("a", "")), result("a")],
        ["arguments_not_json"],
        [GO, use(call("a")), result("a")],
    ),
    "3 arguments that were cut off stay as they came": (
        [GO, use(call("a", '{"q": "x')), result("a")],
        ["arguments_not_json"],
        [GO, use(call("a", '{"q": "x')), result("a")],
    ),
    "a legacy call without its result": (
        [GO, say("assistant", None, function_call={"name": "search", "arguments": "{}"}), MORE],
        ["unanswered_call"],
        [
            GO,
            say("assistant", None, function_call={"name": "search", "arguments": "{}"}),
            {"role": "function", "name": "search", "content": INTERRUPTED},
            MORE,
        ],
    ),
}


@pytest.mark.parametrize(("items", "expected"), [pytest.param(c[0], c[1], id=name) for name, c in BROKEN.items()])
def test_every_rule_has_an_id(items: list[Item], expected: list[str]) -> None:
    assert rules(items, FORMAT) == expected


@pytest.mark.parametrize(("items", "expected"), [pytest.param(c[0], c[2], id=name) for name, c in BROKEN.items()])
def test_repair_changes_as_little_as_it_can(items: list[Item], expected: list[Item]) -> None:
    assert repaired(items, FORMAT) == expected


VALID: dict[str, list[Item]] = {
    "parallel calls": [GO, use(call("a"), call("b")), result("b"), result("a"), DONE],
    "a live step at the end": [GO, use(call("a"), call("b")), result("a")],
    "an id used again in a later turn": [GO, use(call("a")), result("a"), use(call("a")), result("a"), DONE],
    "ids that are null": [GO, use(call(None)), result(None), DONE],
    "ids that are empty": [GO, use(call(""), call("")), result(""), result(""), DONE],
    "ids of a list": [GO, use(call("a")), {"role": "tool", "tool_call_ids": ["a"], "content": "found"}, DONE],
    "no content at all": [GO, {"role": "assistant", "tool_calls": [call("a")]}, result("a")],
    "empty contents": [GO, say("assistant", ""), say("user", []), say("assistant", None)],
    "calls that are null": [GO, DONE | {"tool_calls": None}],
    "system and developer anywhere": [say("system"), GO, DONE, say("developer"), MORE, say("system")],
    "a result of blocks": [GO, use(call("a")), result("a", [{"type": "text", "text": "found"}]), DONE],
    "an empty result": [GO, use(call("a")), result("a", ""), DONE],
    "a custom tool's free text": [
        GO,
        use({"id": "a", "type": "custom", "custom": {"name": "run", "input": "not json"}}),
        result("a"),
    ],
    "extra fields": [GO, use(call("a") | {"index": 0}) | {"annotations": []}, result("a") | {"name": "search"}],
    "a legacy pair": [
        GO,
        say("assistant", None, function_call={"name": "search", "arguments": "{}"}),
        {"role": "function", "name": "search", "content": "found"},
    ],
}


@pytest.mark.parametrize("items", VALID.values(), ids=list(VALID))
def test_what_the_api_accepts_is_left_alone(items: list[Item]) -> None:
    assert rules(items, FORMAT) == []
    assert plain(run(items, FORMAT, {"validate": {"input": "reject"}})) == items


@pytest.mark.parametrize("function", ["search", None, {}], ids=["a string", "null", "empty"])
def test_a_call_without_a_name_is_left_as_it_came(function: Any) -> None:
    items = [GO, use({"id": "a", "function": function}), result("a")]

    assert repaired(items, FORMAT) == items

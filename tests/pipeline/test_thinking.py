"""Thinking and reasoning: what is signed leaves whole or not at all, stripped only behind an edit."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from contracts import Policy, Snapshot, load_policy
from pipeline import prune
from tests.pipeline.arrays import plain, raws, run, user
from tests.pipeline.policies import POLICIES

Item = dict[str, Any]
LONG = "one line of output\n" * 60
CAP: Item = {"compress": {"max_tool_result_tokens": 20}}


def thinking(signature: str, text: str = "Let me see.") -> Item:
    return {"type": "thinking", "thinking": text, "signature": signature}


def use(call_id: str) -> Item:
    return {"type": "tool_use", "id": call_id, "name": "search", "input": {}}


def thought(*blocks: Item) -> Item:
    return {"role": "assistant", "content": list(blocks)}


def result(call_id: str, text: str) -> Item:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": text}]}


TALK: list[Item] = [
    user("go"),
    thought(thinking("s1"), use("a")),
    result("a", LONG),
    thought(thinking("s2"), {"type": "redacted_thinking", "data": "opaque"}, use("b")),
    result("b", "short"),
    thought(thinking("s3"), {"type": "text", "text": "Done."}),
    user("and?"),
]


def signatures(messages: list[Item]) -> list[str]:
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    return [block.get("signature", block.get("data")) for block in blocks if "thinking" in block["type"]]


def test_thinking_after_the_first_change_is_stripped_and_before_it_stays() -> None:
    pruned = run(TALK, CAP)

    assert signatures(plain(pruned)) == ["s1"]
    assert [(edit.action, edit.position, edit.reason) for edit in pruned.edits] == [
        ("shorten", 2, "over_result_cap"),
        ("strip", 3, "stale_thinking"),
        ("strip", 5, "stale_thinking"),
    ]
    assert pruned.first_changed_index == 2


def test_keep_leaves_all_thinking() -> None:
    assert signatures(plain(run(TALK, CAP | {"thinking": "keep"}))) == ["s1", "s2", "opaque", "s3"]


def test_refuse_takes_the_edit_back_and_says_why() -> None:
    pruned = run(TALK, CAP | {"thinking": "refuse"})

    assert plain(pruned) == TALK
    assert (pruned.status, pruned.first_changed_index) == ("fallback", None)
    assert "thinking_bound" in pruned.reason


def test_refuse_also_protects_the_thinking_of_the_turn_that_is_being_continued() -> None:
    waiting = [*TALK[:3], thought(thinking("s2"), use("b")), result("b", "short")]

    assert plain(run(waiting, CAP | {"thinking": "refuse"})) == waiting


def test_thinking_behind_a_repair_is_stripped_also_below_the_gate() -> None:
    broken = [
        user("go"),
        thought(use("a")),
        user("wait"),
        thought(thinking("s"), {"type": "text", "text": "Hm."}),
        user("?"),
    ]
    pruned = run(broken, {"gate": {"messages_over": 50}})

    assert "below_gate" in pruned.reason
    assert signatures(plain(pruned)) == []


def test_refuse_lets_an_edit_pass_that_no_thinking_follows() -> None:
    pruned = run([*TALK[:3], user("and?")], CAP | {"thinking": "refuse"})

    assert (pruned.status, pruned.first_changed_index) == ("pruned", 2)


@pytest.mark.parametrize("choice", ["strip", "keep", "refuse"])
def test_without_an_edit_thinking_is_nobody_s_business(choice: str) -> None:
    pruned = run(TALK, {"thinking": choice})

    assert plain(pruned) == TALK
    assert (pruned.status, pruned.first_changed_index) == ("unchanged", None)


def test_the_turn_that_is_being_continued_keeps_its_thinking() -> None:
    waiting = [*TALK[:3], thought(thinking("s2"), use("b")), result("b", "short")]

    assert signatures(plain(run(waiting, CAP))) == ["s1", "s2"]


def test_thinking_without_text_is_stripped_too() -> None:
    talk = [*TALK[:3], thought(thinking("s2", ""), {"type": "text", "text": "Done."}), user("and?")]

    assert signatures(plain(run(talk, CAP))) == ["s1"]


def test_a_message_of_nothing_but_stale_thinking_goes() -> None:
    talk = [*TALK[:3], thought(thinking("s2")), thought({"type": "text", "text": "Done."}), user("and?")]

    assert plain(run(talk, CAP))[3:] == talk[4:]


def test_a_dropped_prefix_makes_all_later_thinking_stale() -> None:
    pruned = run(TALK, {"prune": {"strategy": "sliding_window", "max_turns": 3}})

    assert pruned.first_changed_index == 1
    assert signatures(plain(pruned)) == []


CHAT: list[Item] = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": None, "reasoning_content": "First.", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "a", "content": LONG},
    {"role": "assistant", "content": "Done.", "reasoning_content": "Second."},
    {"role": "user", "content": "and?"},
]  # fmt: skip
RESPONSES: list[Item] = [
    {"type": "message", "role": "user", "content": "go"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA=="},
    {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "search", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": LONG},
    {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "So"}], "encrypted_content": "B="},
    {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "Done."}]},
    {"type": "message", "role": "user", "content": "and?"},
]  # fmt: skip
GEMINI: list[Item] = [
    {"role": "user", "parts": [{"text": "go"}]},
    {"role": "model", "parts": [
        {"text": "Let me see.", "thought": True},
        {"functionCall": {"name": "search", "args": {}}, "thoughtSignature": "c2ln"}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "search", "response": {"output": LONG}}}]},
    {"role": "model", "parts": [{"text": "Done.", "thoughtSignature": "bW9yZQ=="}]},
    {"role": "user", "parts": [{"text": "and?"}]},
]  # fmt: skip
OPENCODE: list[Item] = [
    {"info": {"role": "user"}, "parts": [{"type": "text", "text": "go"}]},
    {"info": {"role": "assistant"}, "parts": [
        {"type": "reasoning", "text": "Let me see.", "metadata": {"anthropic": {"signature": "s1"}}},
        {"type": "tool", "callID": "a", "tool": "search",
         "state": {"status": "completed", "input": {}, "output": LONG, "time": {"start": 1, "end": 2}}}]},
    {"info": {"role": "assistant"}, "parts": [{"type": "reasoning", "text": "So."}, {"type": "text", "text": "Done."}]},
    {"info": {"role": "user"}, "parts": [{"type": "text", "text": "and?"}]},
]  # fmt: skip
ARRAYS = {"anthropic": TALK, "openai-chat": CHAT, "openai-responses": RESPONSES, "gemini": GEMINI, "opencode": OPENCODE}


@pytest.mark.parametrize("format_name", ["openai-chat", "openai-responses", "gemini", "opencode"])
def test_reasoning_that_is_not_bound_to_the_prefix_outlives_an_edit(format_name: str) -> None:
    pruned = run(ARRAYS[format_name], CAP, format_name)

    assert {edit.action for edit in pruned.edits} == {"shorten"}
    assert list(signed(plain(pruned))) == list(signed(ARRAYS[format_name]))


def signed(value: Any) -> Iterator[Any]:
    """Everything a provider signed, encrypted or thought, wherever it stands, with what stands beside it."""
    if isinstance(value, dict):
        kind = value.get("type")
        if (
            kind in ("thinking", "redacted_thinking", "reasoning")
            or "thoughtSignature" in value
            or value.get("thought")
        ):
            yield value
        elif "reasoning_content" in value:
            yield value["reasoning_content"]
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from signed(child)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))
@pytest.mark.parametrize("format_name", ARRAYS)
def test_what_is_signed_is_never_altered(format_name: Any, policy: Policy) -> None:
    published = prune(Snapshot("c", raws(ARRAYS[format_name]), format=format_name), policy).messages

    assert isinstance(published, list)
    before = list(signed(ARRAYS[format_name]))
    assert [part for part in signed([msgspec.json.decode(item) for item in published]) if part not in before] == []


@pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))
def test_responses_reasoning_goes_with_its_items(policy: Policy) -> None:
    published = plain(prune(Snapshot("c", raws(RESPONSES), format="openai-responses"), policy))

    assert (RESPONSES[1] in published) == any(item.get("id") == "fc_1" for item in published)
    assert (RESPONSES[4] in published) == (RESPONSES[5] in published)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=list(POLICIES))
@pytest.mark.parametrize("format_name", ARRAYS)
def test_the_first_changed_index_is_that_of_the_first_edit(format_name: Any, policy: Policy) -> None:
    pruned = prune(Snapshot("c", raws(ARRAYS[format_name]), format=format_name), policy)

    assert pruned.first_changed_index == min((edit.position for edit in pruned.edits), default=None)


def test_thinking_is_stripped_by_default() -> None:
    assert load_policy({}).thinking == "strip"

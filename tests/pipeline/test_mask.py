"""Masking: marks and their time in OpenCode sessions, the text in every other format, and what a model then sees."""

from typing import Any

import pytest
from msgspec.structs import replace

from contracts import Pruned, Snapshot, load_policy
from pipeline import prune, render_compacted
from pipeline.notices import CLEARED, INTERRUPTED
from tests.pipeline.arrays import chat_calls, chat_result, plain, raws, user
from tests.pipeline.arrays import run as run_plain

Item = dict[str, Any]
LONG = "a line of output\n" * 60
MASK: Item = {"compress": {"mask": {"protect_tokens": 0, "minimum_tokens": 1, "active_user_turns": 1}}}


def tool(output: str = LONG, status: str = "completed", name: str = "read", **time: int) -> Item:
    state = {"status": status, "input": {}, "output": output, "time": time}
    return {"type": "tool", "callID": "c", "tool": name, "state": state}


def message(role: str, *parts: Item, **info: Any) -> Item:
    return {"info": {"role": role, **info}, "parts": list(parts)}


ASK = message("user", {"type": "text", "text": "go"})
LAST = message("user", {"type": "text", "text": "and?"})


def run(items: list[Item], taken_at: int = 0, policy: Item = MASK) -> Pruned:
    return prune(Snapshot("c", raws(items), format="opencode", taken_at=taken_at), load_policy(policy))


def marks(items: list[Item]) -> list[int | None]:
    """The time at which each tool part was compacted."""
    parts = [part for item in items for part in item["parts"] if part["type"] == "tool"]
    return [part["state"]["time"].get("compacted") for part in parts]


def test_the_mark_carries_the_time_of_the_snapshot() -> None:
    assert marks(plain(run([ASK, message("assistant", tool(start=5, end=9)), LAST], taken_at=1_700))) == [1_700]


def test_without_it_the_latest_time_inside_the_messages() -> None:
    first = message("assistant", tool(start=5, end=9), time={"created": 3, "completed": 40})

    assert marks(plain(run([ASK, first, message("assistant", tool(start=50, end=70)), LAST]))) == [70, 70]


def test_a_session_that_tells_no_time_gets_one() -> None:
    assert marks(plain(run([ASK, message("assistant", tool()), LAST]))) == [1]


def test_a_mark_adds_one_field_and_changes_no_other_byte() -> None:
    items = [ASK, message("assistant", tool(start=5, end=9), cost=0.1), LAST]
    pruned = run(items, taken_at=7)

    assert isinstance(pruned.messages, list)
    before, after = bytes(raws(items)[1]), bytes(pruned.messages[1])
    assert after == before.replace(b'"end":9}', b'"end":9,"compacted":7}')
    assert [(edit.action, edit.reason, edit.tool) for edit in pruned.edits] == [("mask", "old_tool_output", "read")]


def test_a_later_run_leaves_the_mark_and_its_time() -> None:
    marked = plain(run([ASK, message("assistant", tool(start=5, end=9)), LAST], taken_at=100))

    later = run(marked, taken_at=200)

    assert (later.status, marks(plain(later))) == ("unchanged", [100])


@pytest.mark.parametrize("status", ["pending", "running", "error"])
def test_only_completed_parts_are_marked(status: str) -> None:
    items = [ASK, message("assistant", tool(), tool(status=status)), LAST]

    assert marks(plain(run(items, taken_at=7))) == [7, None]


def test_a_protected_tool_is_not_marked() -> None:
    items = [ASK, message("assistant", tool(), tool(name="skill")), LAST]

    assert marks(plain(run(items, taken_at=7))) == [7, None]


def test_nothing_before_a_summary_is_looked_at() -> None:
    summary = message("assistant", {"type": "text", "text": "so far"}, summary=True)
    items = [ASK, message("assistant", tool()), summary, ASK, message("assistant", tool()), LAST]

    assert marks(plain(run(items, taken_at=7))) == [None, 7]


def test_nothing_before_an_earlier_mark_is_looked_at() -> None:
    parts = [tool(), tool(compacted=3), tool()]
    items = [ASK, *(message("assistant", part) for part in parts), LAST]

    assert marks(plain(run(items, taken_at=7))) == [None, 3, 7]


def test_a_marked_output_counts_as_its_rendering() -> None:
    pruned = run([ASK, message("assistant", tool(start=5, end=9)), LAST], taken_at=7)
    assert isinstance(pruned.messages, list)

    rendered = prune(Snapshot("c", render_compacted(pruned.messages), format="opencode"), load_policy({}))

    assert pruned.tokens.after < pruned.tokens.before
    assert rendered.tokens.before == pruned.tokens.after


def test_the_context_view_says_compacted_and_the_session_keeps_the_output() -> None:
    pruned = run([ASK, message("assistant", tool(start=5, end=9), tool("kept", name="skill")), LAST], taken_at=7)
    assert isinstance(pruned.messages, list)

    parts = plain(replace(pruned, messages=render_compacted(pruned.messages)))[1]["parts"]

    assert [part["state"]["output"] for part in parts] == ["[compacted]", "kept"]
    assert [part["state"]["output"] for part in plain(pruned)[1]["parts"]] == [LONG, "kept"]


RESPONSES: list[Item] = [
    {"type": "message", "role": "user", "content": "go"},
    {"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": LONG},
    {"type": "message", "role": "user", "content": "and?"},
]
GEMINI: list[Item] = [
    {"role": "user", "parts": [{"text": "go"}]},
    {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"text": LONG}}}]},
    {"role": "model", "parts": [{"text": "so"}]},
    {"role": "user", "parts": [{"text": "and?"}]},
]
CHAT = [user("go"), chat_calls("a", name="read"), chat_result("a", LONG), user("and?")]


@pytest.mark.parametrize(
    ("format_name", "items", "expected"),
    [
        ("openai-chat", CHAT, {**CHAT[2], "content": "[compacted]"}),
        ("openai-responses", RESPONSES, {**RESPONSES[2], "output": "[compacted]"}),
        (
            "gemini",
            GEMINI,
            {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": "[compacted]"}}}]},
        ),
    ],
    ids=["openai-chat", "openai-responses", "gemini"],
)
def test_in_other_formats_the_content_becomes_the_text(format_name: str, items: list[Item], expected: Item) -> None:
    published = plain(run_plain(items, MASK, format_name))

    assert published == [*items[:2], expected, *items[3:]]
    assert run_plain(published, MASK, format_name).status == "unchanged"


@pytest.mark.parametrize("stub", [CLEARED, INTERRUPTED])
def test_our_own_stubs_are_not_masked_again(stub: str) -> None:
    items = [user("go"), chat_calls("a"), chat_result("a", stub), user("and?")]

    assert run_plain(items, MASK, "openai-chat").edits == []

"""OpenCode: call and result in one part, compaction by a mark, the context view."""

from typing import Any

import pytest
from msgspec import Raw

from pipeline import render_compacted
from pipeline.notices import CLEARED
from pipeline.units import frontier, pair_calls
from tests.pipeline.dialects.checks import Item, parts, plain, raws, read, relettered, repaired, rewritten, rules, run

NAME = "opencode"
LONG = "x" * 900


def message(role: str, *found: Item, **info: Any) -> Item:
    return {"info": {"id": "msg_1", "role": role, **info}, "parts": list(found)}


def text(value: str, **fields: Any) -> Item:
    return {"id": "prt_1", "type": "text", "text": value, **fields}


def tool(call_id: Any = "call_1", status: str = "completed", name: str = "read", **state: Any) -> Item:
    time = {"start": 1, "end": 2}
    return {
        "type": "tool",
        "callID": call_id,
        "tool": name,
        "state": {"status": status, "input": {}, "time": time, **state},
    }


STEP = {"type": "step-start", "snapshot": "abc"}
ASK, MORE = message("user", text("go")), message("user", text("more"))
DONE = message("assistant", STEP, text("done"), {"type": "step-finish", "tokens": {}})
FAILED = tool("call_e", "error", error="no such file " * 40)
PENDING = tool("call_p", "pending")

VALID = {
    "one round": [ASK, message("assistant", tool(output="found")), DONE],
    "a part that failed": [ASK, message("assistant", FAILED), MORE],
    "a part that never ended, in the middle": [ASK, message("assistant", PENDING), MORE],
    "starts with the assistant": [DONE, ASK],
    "no parts": [ASK, message("assistant"), MORE],
    "equal ids": [ASK, message("assistant", tool("REDACTED", output="a"), tool("REDACTED", output="b")), MORE],
    "empty": [],
}

BROKEN = {
    "bad_shape": [ASK, {"role": "user", "content": "go"}],
    "tool_without_state": [ASK, message("assistant", {"type": "tool", "callID": "a", "tool": "read"})],
}


@pytest.mark.parametrize("items", VALID.values(), ids=VALID)
def test_a_session_as_it_is_stored_breaks_no_rule_and_leaves_as_it_came(items: list[Item]) -> None:
    assert rules(items, NAME) == []
    assert run(items, NAME).edits == []


@pytest.mark.parametrize(("rule", "items"), BROKEN.items(), ids=BROKEN)
def test_a_broken_item_is_named_by_its_rule_and_left_alone(rule: str, items: list[Item]) -> None:
    assert rules(items, NAME) == [rule]
    assert repaired(items, NAME) == items


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (tool(output="found"), [("call", ""), ("result", "")]),
        (tool(output=None), [("call", ""), ("result", "")]),
        (tool(status="error", error="no"), [("call", ""), ("result", "error")]),
        (tool(status="pending"), [("call", "pending")]),
        (tool(status="running"), [("call", "pending")]),
        (tool(output="found", time={"start": 1, "compacted": 5}), [("call", ""), ("result", "compacted")]),
        ({"type": "tool"}, [("call", "pending")]),
        (text("hello"), [("text", "")]),
        ({"type": "reasoning", "text": "plan"}, [("reasoning", "")]),
        ({"type": "file", "mime": "image/png", "url": "data:"}, [("media", "")]),
        ({"type": "file", "mime": "text/plain", "url": "file:"}, [("opaque", "")]),
        (STEP, [("opaque", "")]),
        ({"type": "from the future"}, [("opaque", "")]),
        ({"type": ["odd"], "text": 7}, [("opaque", "")]),
        (None, [("opaque", "")]),
    ],
    ids=str,
)
def test_every_part_is_read_as_its_kind(part: Any, expected: list[tuple[str, str]]) -> None:
    assert [(found.kind, found.state) for found in parts(message("assistant", part), NAME)] == expected


def test_bookkeeping_costs_nothing() -> None:
    items = [message("assistant", STEP, {"type": "patch", "files": ["a" * 900]}, {"type": "step-finish", "cost": 1})]

    assert read(items, NAME).tokens == 0


def test_a_compacted_output_counts_as_its_rendering() -> None:
    part = parts(message("assistant", tool(output=LONG, time={"compacted": 5})), NAME)[1]

    assert (part.slots, part.size) == ((), len("[compacted]"))


@pytest.mark.parametrize("call_id", ["call_1", "REDACTED", "", None, 7], ids=str)
def test_equal_ids_in_one_message_do_not_confuse_the_pairs(call_id: Any) -> None:
    pending = tool(call_id, "running")
    found = [pending, tool(call_id, output="a"), tool(call_id, output="b"), pending, tool(call_id, "error", error="c")]
    pairs = pair_calls(read([ASK, message("assistant", *found)], NAME).messages)

    assert [call.result and call.result.path for call in pairs.calls] == [
        None,
        ("parts", 1),
        ("parts", 2),
        None,
        ("parts", 4),
    ]
    assert pairs.unmatched == ()


def test_a_part_that_still_runs_is_the_live_step_and_a_finished_one_is_not() -> None:
    finished = message("assistant", tool(output="a"))

    assert frontier(read([ASK, finished, finished], NAME).messages) == 3
    assert frontier(read([ASK, finished, message("assistant", PENDING)], NAME).messages) == 2


def test_only_a_true_summary_marks_a_message() -> None:
    boundary, diffs = message("assistant", summary=True), message("user", text("a"), summary={"diffs": []})

    assert [m.view.marks for m in read([boundary, diffs], NAME).messages] == [frozenset({"summary"}), frozenset()]


def test_a_result_takes_another_output_and_all_else_stays() -> None:
    metadata = {"diff": LONG}
    before = message("assistant", STEP, tool(output="a", metadata=metadata), path={"cwd": "/"})

    assert rewritten(before, NAME, "new") == message(
        "assistant", STEP, tool(output="new", metadata=metadata), path={"cwd": "/"}
    )


@pytest.mark.parametrize(
    "part",
    [FAILED, PENDING, tool(output=LONG, time={"compacted": 5})],
    ids=["failed", "pending", "compacted"],
)
def test_only_a_completed_output_may_be_rewritten(part: Item) -> None:
    item = message("assistant", part)

    assert rewritten(item, NAME, "new") == item
    assert relettered(item, NAME) == item


@pytest.mark.parametrize(
    "policy",
    [
        {"compress": {"max_tool_result_tokens": 1}},
        {"collapse": {"after_turns": 0, "into": "stub"}},
        {"compress": {"mask": {"protect_tokens": 0, "minimum_tokens": 0, "active_user_turns": 0}}},
    ],
    ids=["compress", "collapse", "mask"],
)
def test_failed_and_pending_parts_are_never_changed(policy: dict[str, Any]) -> None:
    items = [ASK, message("assistant", FAILED, PENDING), message("assistant", FAILED), DONE, MORE]

    assert plain(run(items, NAME, policy)) == items


def test_a_long_output_is_shortened_in_place() -> None:
    items = [ASK, message("assistant", FAILED, tool(output=LONG)), MORE]

    published = plain(run(items, NAME, {"compress": {"max_tool_result_tokens": 50}}))

    assert published == [ASK, message("assistant", FAILED, tool(output=LONG[:200] + "\n[truncated]")), MORE]


def test_an_old_output_is_cleared_in_place() -> None:
    items = [ASK, message("assistant", tool(output=LONG)), MORE]

    published = plain(run(items, NAME, {"collapse": {"after_turns": 0, "into": "stub"}}))

    assert published == [ASK, message("assistant", tool(output=CLEARED)), MORE]


def test_a_collapsed_part_becomes_a_synthetic_text() -> None:
    items = [ASK, message("assistant", STEP, tool(output=LONG)), MORE]

    published = plain(run(items, NAME, {"collapse": {"after_turns": 0, "into": "assistant"}}))

    stands_for_it = {"type": "text", "text": "[Tool: read | Result summarized — called 1 turns ago]", "synthetic": True}
    assert published == [ASK, message("assistant", STEP, stands_for_it), MORE]


def test_masking_marks_the_output_and_keeps_it() -> None:
    items = [ASK, message("assistant", tool(output=LONG)), MORE, MORE]
    mask = {"protect_tokens": 0, "minimum_tokens": 1}

    published = plain(run(items, NAME, {"compress": {"mask": mask}}))

    assert published[1] == message("assistant", tool(output=LONG, time={"start": 1, "end": 2, "compacted": 2}))


def test_a_notice_is_a_valid_message() -> None:
    items = [ASK, DONE, message("assistant", tool(output=LONG)), MORE]

    published = plain(run(items, NAME, {"prune": {"strategy": "summarize", "max_turns": 1}}))

    summary = {"type": "text", "text": "[Previous context summarized: 3 turns]", "synthetic": True}
    assert published == [{"info": {"role": "user"}, "parts": [summary]}, MORE]


def test_a_rendered_session_leaves_compacted_outputs_out() -> None:
    compacted = tool(output=LONG, time={"start": 1, "compacted": 5}, metadata={"n": 1.5})
    items = raws([ASK, message("assistant", STEP, compacted, tool(output="kept")), DONE])

    rendered = render_compacted(items)

    assert plain_items(rendered) == [
        ASK,
        message(
            "assistant",
            STEP,
            {**compacted, "state": {**compacted["state"], "output": "[compacted]"}},
            tool(output="kept"),
        ),
        DONE,
    ]


@pytest.mark.parametrize(
    "item",
    [
        b'{"info":{"role":"assistant"}, "parts":[{"type":"tool","state":{"time":{"compacted":null},"output":"a"}}]}',
        b'{ "info":{"role":"assistant"}, "parts":[ {"type":"tool","state":{"time":{"compacted":0},"output":"a"}} ] }',
        b'{ "info":{"role":"user"}, "parts":[ {"type":"text","text":"compacted", "n": 1.50} ] }',
        b'{ "parts": {"compacted": 1} }',
        b'[ "compacted" ]',
    ],
)
def test_a_rendered_session_keeps_every_other_byte(item: bytes) -> None:
    assert render_compacted([Raw(item)]) == [Raw(item)]


def test_rendering_twice_changes_nothing_more() -> None:
    once = render_compacted(raws([message("assistant", tool(output=LONG, time={"compacted": 5}))]))

    assert render_compacted(once) == once


def plain_items(items: list[Raw]) -> list[Item]:
    import msgspec

    return [msgspec.json.decode(item) for item in items]

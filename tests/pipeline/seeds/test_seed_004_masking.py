"""Seed 004 in its own order: zones, constants and stop rules of lazy masking.

Exceptions to the seed: only OpenCode sessions have a mark to set, so in the other formats the content itself becomes
`[compacted]`, the text that the seed's filter would show; the time of a mark is the snapshot's, never the clock's
(promise 3).
"""

from typing import Any

import pytest

from contracts import PRESETS
from pipeline import render_compacted
from pipeline.shorten import CHARS_PER_TOKEN
from tests.pipeline.arrays import assistant, calls, plain, results, run, user

NOW = 1_705_512_345_678
Item = dict[str, Any]


def part(tokens: int, name: str = "read", status: str = "completed", **time: int) -> Item:
    state = {"status": status, "input": {}, "output": "x" * (tokens * 4), "time": {"start": 1234, "end": 1235, **time}}
    return {"type": "tool", "callID": "c", "tool": name, "state": state}


def did(*parts: Item, **info: Any) -> Item:
    return {"info": {"role": "assistant", **info}, "parts": list(parts)}


def asked(text: str) -> Item:
    return {"info": {"role": "user"}, "parts": [{"type": "text", "text": text}]}


ASK = asked("go")
ACTIVE = [asked("Please edit main.go"), did(part(90_000)), asked("Fix the bug")]


def masked(items: list[Item], **mask: Any) -> list[tuple[int, int]]:
    """Message and part of every output that a run marked."""
    policy = {"preset": "opencode", "compress": {"mask": mask}} if mask else "opencode"
    published = plain(run(items, policy, "opencode", taken_at=NOW))
    return [
        (i, j)
        for i, item in enumerate(published)
        for j, found in enumerate(item["parts"])
        if found["type"] == "tool" and found["state"]["time"].get("compacted") == NOW
    ]


def output(number: int, tokens: int, name: str = "read") -> list[Item]:
    """A round of the Messages API."""
    return [calls(f"t{number}", name=name), results(f"t{number}", text="x" * (tokens * 4))]


PLAIN_ACTIVE = [user("edit main.go"), assistant("done"), user("fix the bug")]


def test_outputs_are_marked_rather_than_deleted() -> None:
    """Purpose: "It marks outputs as compacted rather than deleting them"."""
    items = [ASK, did(part(25_000)), did(part(40_000)), *ACTIVE]

    kept = plain(run(items, "opencode", "opencode", taken_at=NOW))

    assert kept[1]["parts"][0]["state"]["output"] == "x" * 100_000
    assert [item for i, item in enumerate(kept) if i != 1] == [item for i, item in enumerate(items) if i != 1]


def test_where_there_is_no_mark_the_content_becomes_compacted_and_the_structure_stays() -> None:
    """Core Insight 1 and 2: "Keep the tool call structure intact"; "Exclude the actual output content"."""
    messages = [user("go"), *output(1, 25_000), *output(2, 40_000), *PLAIN_ACTIVE]

    kept = plain(run(messages, "opencode"))

    assert kept == [*messages[:2], results("t1", text="[compacted]"), *messages[3:]]


def test_recent_outputs_are_preserved() -> None:
    """Core Insight 3: "Preserve recent outputs for active work context"."""
    assert masked([ASK, did(part(90_000)), did(part(3_000)), *ACTIVE]) == [(1, 0)]


def test_the_three_zones() -> None:
    """Algorithm Visualization: the figure, two of its outputs enlarged so that both thresholds are passed."""
    prune_zone = [did(part(5_000, "read_file")), did(part(12_000, "bash")), did(part(8_000, "grep"))]
    protection_zone = [did(part(37_000, "read_file")), did(part(500, "edit_file"))]

    assert masked([ASK, *prune_zone, *protection_zone, *ACTIVE]) == [(1, 0), (2, 0), (3, 0)]


def test_without_the_option_nothing_is_masked() -> None:
    """State Machine: "config.prune? FALSE -> EXIT"."""
    assert run([ASK, did(part(90_000)), did(part(40_000)), *ACTIVE], {}, "opencode").edits == []


def test_the_last_two_user_turns_are_active_and_skipped() -> None:
    """State Machine: "turns < 2? YES" goes on to the next message."""
    assert masked([ASK, asked("again"), did(part(90_000)), did(part(90_000)), asked("now")]) == []
    assert masked([ASK, did(part(90_000)), asked("again"), asked("now")]) == [(1, 0)]


def test_every_user_message_is_a_turn_whatever_its_parts() -> None:
    """State Machine: "msg.role == user? YES: turns++"."""
    bare = {"info": {"role": "user"}, "parts": []}

    assert masked([ASK, did(part(25_000)), did(part(40_000)), bare, ASK]) == [(1, 0)]


def test_a_summary_ends_the_walk_and_what_was_found_is_committed() -> None:
    """State Machine: "msg.summary == true? YES -> COMMIT PRUNES"."""
    old, new = did(part(90_000)), [did(part(30_000)), did(part(40_000))]

    assert masked([ASK, old, did(part(90_000), summary=True), *new, *ACTIVE]) == [(3, 0)]


def test_parts_are_scanned_newest_first() -> None:
    """State Machine: "Scan Parts (reversed)"."""
    assert masked([ASK, did(part(20_000), part(25_000), part(30_000)), *ACTIVE]) == [(1, 0), (1, 1)]


def test_parts_that_are_no_tools_are_passed_over() -> None:
    """Part Analysis: "part.type == tool? NO -> next part"."""
    text = {"type": "text", "text": "x" * 400_000}

    assert masked([ASK, did(part(25_000), text), did(text, part(40_000)), *ACTIVE]) == [(1, 0)]


@pytest.mark.parametrize("status", ["pending", "running", "error"])
def test_parts_that_are_not_completed_are_passed_over(status: str) -> None:
    """Part Analysis: "part.state.status == completed? NO -> next part"."""
    assert masked([ASK, did(part(90_000, status=status)), did(part(40_000)), *ACTIVE]) == []
    assert masked([ASK, did(part(25_000)), did(part(90_000, status=status)), *ACTIVE]) == []


def test_failed_results_of_other_formats_are_passed_over_too() -> None:
    """Part Analysis: an error is not `completed`, however a format says so."""
    failed = output(1, 90_000)
    failed[1]["content"][0]["is_error"] = True

    assert run([user("go"), *failed, *output(2, 40_000), *PLAIN_ACTIVE], "opencode").edits == []


def test_protected_tools_neither_count_nor_stop_the_walk() -> None:
    """Part Analysis: protected is asked before compacted, and before the estimate is added."""
    protected = [did(part(90_000, "skill")), did(part(1, "skill", compacted=7))]

    assert masked([ASK, did(part(25_000)), *protected, did(part(40_000)), *ACTIVE]) == [(1, 0)]


def test_an_earlier_compaction_stops_the_walk() -> None:
    """Part Analysis: "part.state.time.compacted exists? YES -> STOP (hit boundary)"."""
    assert masked([ASK, did(part(90_000)), did(part(1, compacted=7)), did(part(40_000)), *ACTIVE]) == []


def test_an_estimate_is_the_length_over_four() -> None:
    """Part Analysis: "estimate = len(output) / 4", rounded down."""
    output_of_79_999_chars = part(0)
    output_of_79_999_chars["state"]["output"] = "x" * 79_999

    assert masked([ASK, did(output_of_79_999_chars), did(part(40_000)), *ACTIVE]) == []
    assert masked([ASK, did(part(20_000)), did(part(40_000)), *ACTIVE]) == [(1, 0)]


@pytest.mark.parametrize(("tokens", "expected"), [(40_000, []), (40_001, [(1, 0)])])
def test_the_total_must_exceed_the_protected_tokens(tokens: int, expected: list[tuple[int, int]]) -> None:
    """Part Analysis: "total > PRUNE_PROTECT (40K)? NO -> next part (protected)"; the one that passes it goes."""
    assert masked([ASK, did(part(tokens)), *ACTIVE]) == expected


def test_the_constants() -> None:
    """Constants Rationale and Protected Tools: 40,000, 20,000, 4, "skill"; and the two active turns."""
    assert PRESETS["opencode"]["compress"]["mask"] == {
        "protect_tokens": 40_000,
        "minimum_tokens": 20_000,
        "active_user_turns": 2,
        "protected_tools": ["skill"],
    }
    assert CHARS_PER_TOKEN == 4


def test_skill_outputs_are_never_pruned() -> None:
    """Protected Tools: "The `skill` tool outputs are never pruned"."""
    assert masked([ASK, did(part(90_000, "skill")), did(part(25_000)), did(part(40_000)), *ACTIVE]) == [(2, 0)]


def test_pruning_adds_the_time_and_nothing_else() -> None:
    """Pruning Effect: the seed's before and after."""
    before, after = part(25_000), part(25_000, compacted=NOW)

    kept = plain(run([ASK, did(before), did(part(40_000)), *ACTIVE], "opencode", "opencode", taken_at=NOW))

    assert kept[1] == did(after)


def test_the_filter_excludes_marked_outputs_from_the_context() -> None:
    """Message Filter Behavior: `output: "[compacted]"` for a marked part, every other part as it is."""
    result = run([ASK, did(part(25_000)), did(part(40_000)), *ACTIVE], "opencode", "opencode", taken_at=NOW)

    assert isinstance(result.messages, list)
    seen = [bytes(item) for item in render_compacted(result.messages)]
    assert b'"output":"[compacted]"' in seen[1]
    assert [item for i, item in enumerate(seen) if i != 1] == [
        bytes(item) for i, item in enumerate(result.messages) if i != 1
    ]


def test_the_oldest_outputs_are_the_ones_that_go() -> None:
    """Iteration Order: "Most recent content is most valuable"."""
    messages = [user("go"), *output(1, 25_000), *output(2, 30_000), *output(3, 15_000), *PLAIN_ACTIVE]

    assert [edit.position for edit in run(messages, "opencode").edits] == [2, 4]


@pytest.mark.parametrize(("turns", "expected"), [(0, 3), (1, 3), (2, 2), (3, 1), (4, 0)])
def test_turns_are_user_messages(turns: int, expected: int) -> None:
    """Turn Counting: "The algorithm skips the last 2 turns"; the number is the policy's."""
    items = [ASK, did(part(50)), asked("1"), did(part(50)), asked("2"), did(part(50)), asked("3")]

    assert len(masked(items, protect_tokens=0, minimum_tokens=0, active_user_turns=turns)) == expected


def test_an_empty_session_returns_at_once() -> None:
    """Edge Cases: Empty Session."""
    assert run([], "opencode", "opencode").status == "unchanged"


def test_without_tool_outputs_nothing_happens() -> None:
    """Edge Cases: No Tool Outputs."""
    text = {"type": "text", "text": "x" * 400_000}

    assert run([ASK, did(text), did(text), *ACTIVE], "opencode", "opencode").status == "unchanged"


def test_when_all_are_protected_nothing_happens() -> None:
    """Edge Cases: All Protected."""
    assert masked([ASK, did(part(50_000, "skill")), did(part(50_000, "skill")), *ACTIVE]) == []


def test_only_what_came_after_a_previous_compaction_is_pruned() -> None:
    """Edge Cases: Previous Compaction Exists: "Only prunes content after that point"."""
    items = [ASK, did(part(90_000)), did(part(1, compacted=7)), did(part(25_000)), did(part(40_000)), *ACTIVE]

    assert masked(items) == [(3, 0)]


def test_a_previous_compaction_of_another_format_is_its_text() -> None:
    """Edge Cases: Previous Compaction Exists, where the text stands for the mark."""
    before = [calls("c"), results("c", text="[compacted]")]
    messages = [user("go"), *output(0, 90_000), *before, *output(1, 25_000), *output(2, 40_000), *PLAIN_ACTIVE]

    assert [edit.position for edit in run(messages, "opencode").edits] == [6]


@pytest.mark.parametrize(("tokens", "expected"), [(19_999, []), (20_000, [(1, 0)])])
def test_nothing_is_committed_below_the_minimum(tokens: int, expected: list[tuple[int, int]]) -> None:
    """Edge Cases: Below Minimum Threshold: "pruned < PRUNE_MINIMUM (20K)"."""
    assert masked([ASK, did(part(tokens)), did(part(40_000)), *ACTIVE]) == expected

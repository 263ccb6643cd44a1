"""Seed 002 in its own order: results capped with a mark, old single-tool pairs collapsed into one message.

Exceptions to the seed: a cut or a text that would not be shorter is not made (promise 5); a result message that also
holds user text, and a call that still waits, are not collapsed, for what was said would be lost; of the seed's two
texts for a collapsed pair the later holds.
"""

from typing import Any

import msgspec
import pytest

from contracts import PRESETS, raw
from contracts.policy import Collapse, Compress
from pipeline import collapse_tool_chains, compress_tool_result, validate_message_sequence
from tests.pipeline.arrays import assistant, calls, plain, raws, results, run, user

LONG = "x" * 1_000
OLD = [user("go"), calls("a", name="grep"), results("a", text="x" * 400), assistant("so"), user("and"), assistant("on")]
SAID = assistant("[Tool: grep | Result summarized — called 3 turns ago]")


def cap(tokens: int) -> dict[str, object]:
    return {"count": "chars/4", "compress": {"max_tool_result_tokens": tokens}}


def collapse(after: int, **more: object) -> dict[str, object]:
    return {"count": "chars/4", "collapse": {"after_turns": after, "into": "assistant", "multi_tool": False, **more}}


def block(text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "a", "content": text}


def compressed(text: str, tokens: int) -> str:
    result = compress_tool_result(raw(block(text)), Compress(max_tool_result_tokens=tokens))
    return str(msgspec.json.decode(result)["content"])


def test_the_id_and_the_block_type_stay() -> None:
    """Context: "as long as the `tool_use_id` linkage is preserved and the block type remains `tool_result`"."""
    kept = plain(run([user("go"), calls("a"), results("a", text=LONG)], cap(10)))[2]["content"][0]

    assert (kept["type"], kept["tool_use_id"]) == ("tool_result", "a")


def test_opportunity_1_each_result_is_capped() -> None:
    """Context 1: "cap its content length at `maxToolResultTokens`"."""
    messages = [user("go"), calls("a", "b"), results("a", "b", text=LONG)]

    assert plain(run(messages, cap(10)))[2] == results("a", "b", text="x" * 40 + "\n[truncated]")


def test_opportunity_2_an_old_pair_becomes_one_short_assistant_message() -> None:
    """Context 2: "replace the entire assistant+user turn pair with a single short assistant message"."""
    assert plain(run(OLD, collapse(2))) == [OLD[0], SAID, *OLD[3:]]


def test_both_work_independently() -> None:
    """Goals: "Provide both per-result and per-chain compression independently"."""
    assert {edit.stage for edit in run(OLD, cap(10)).edits} == {"compress"}
    assert {edit.stage for edit in run(OLD, collapse(0)).edits} == {"collapse"}


@pytest.mark.parametrize("after", range(8))
def test_the_array_stays_valid(after: int) -> None:
    """Goals: "Never produce an invalid messages array"."""
    rounds = [m for i in "abcd" for m in (calls(i), results(i, text="x" * 400))]

    result = run([user("go"), *rounds, user("end")], {**collapse(after), **cap(5)})

    assert isinstance(result.messages, list)
    assert validate_message_sequence(result.messages, "anthropic") == []
    assert result.status == "pruned"


def test_truncation_is_positional() -> None:
    """Non-Goals: "truncation is positional [...], not semantic"; the error at the end is cut like anything else."""
    assert compressed("start " + "." * 500 + " Error: disk full", 5) == "start " + "." * 14 + "\n[truncated]"


def test_other_messages_are_not_compressed() -> None:
    """Non-Goals: "Compressing non-tool messages"."""
    assert run([user(LONG), assistant(LONG), user(LONG)], {**cap(5), **collapse(0)}).edits == []


def test_compress_tool_result_truncates_and_marks_a_long_block() -> None:
    """`compressToolResult`: "truncates the text content to that limit and appends a `[truncated]` marker"."""
    assert compressed(LONG, 10) == "x" * 40 + "\n[truncated]"


def test_compress_tool_result_leaves_a_block_within_the_limit() -> None:
    """`compressToolResult`: "If its estimated token count exceeds"."""
    assert compressed("x" * 40, 10) == "x" * 40


def test_compress_tool_result_never_mutates_its_input() -> None:
    """`compressToolResult`: "Returns a new block — never mutates input."."""
    given = raw(block(LONG))
    before = bytes(given)

    assert compress_tool_result(given, Compress(max_tool_result_tokens=10)) is not given
    assert bytes(given) == before


def test_collapse_tool_chains_returns_a_new_array() -> None:
    """`collapseToolChains`: "Replaces each qualifying pair with a single synthetic assistant message"."""
    messages = raws(OLD)

    kept = collapse_tool_chains(messages, Collapse(after_turns=2, into="assistant", multi_tool=False))

    assert [msgspec.json.decode(item) for item in kept] == [OLD[0], SAID, *OLD[3:]]
    assert [msgspec.json.decode(item) for item in messages] == OLD


@pytest.mark.parametrize(("after", "is_collapsed"), [(2, True), (3, False), (4, False)])
def test_the_distance_from_the_end_must_exceed_after_turns(after: int, is_collapsed: bool) -> None:
    """`collapseToolChains`: "whose distance from the end of the array exceeds `collapseAfterTurns`"."""
    assert (run(OLD, collapse(after)).edits != []) == is_collapsed


@pytest.mark.parametrize(("length", "is_cut"), [(43, False), (44, False), (52, False), (53, True)])
def test_tokens_are_characters_over_four_and_a_cut_must_shorten(length: int, is_cut: bool) -> None:
    """Token estimation: "Math.floor(text.length / 4)"; exception (promise 5): 44-52 would grow with their mark."""
    assert (compressed("x" * length, 10) != "x" * length) == is_cut


@pytest.mark.parametrize("length", [0, 39, 40, 43, 44, 45])
def test_a_result_that_would_not_shrink_is_left_alone(length: int) -> None:
    """Exception (promise 5), as the whole run sees it."""
    messages = [user("go"), calls("a"), results("a", text="x" * length)]

    assert plain(run(messages, cap(10))) == messages


@pytest.mark.parametrize("tokens", [0, 1, 10, 200])
def test_the_target_is_four_characters_a_token(tokens: int) -> None:
    """Token estimation: "`maxToolResultTokens * 4` characters. Appends "\\n[truncated]" at the cut point."."""
    assert compressed(LONG, tokens) == "x" * (tokens * 4) + "\n[truncated]"


def test_a_capped_result_is_known_again() -> None:
    """Token estimation: the mark is not cut again by a later run (promise 3)."""
    messages = [user("go"), calls("a"), results("a", text="x" * 40 + "\n[truncated]")]

    assert run(messages, cap(10)).edits == []


def test_a_pair_is_one_call_and_the_result_that_follows() -> None:
    """Tool pair identification: text beside the one `tool_use` block goes with the pair."""
    call = calls("a", name="grep")
    call["content"].insert(0, {"type": "text", "text": "I will search."})

    assert plain(run([OLD[0], call, *OLD[2:]], collapse(2))) == [OLD[0], SAID, *OLD[3:]]


def test_multi_tool_turns_are_left_intact_under_the_preset() -> None:
    """Tool pair identification: "Pairs where the assistant turn has multiple tool_use blocks are left intact."."""
    messages = [user("go"), calls("a", "b"), results("a", "b", text="x" * 400), *OLD[3:]]

    assert PRESETS["beskar"]["collapse"]["multi_tool"] is False
    assert run(messages, collapse(0)).edits == []


def test_a_result_message_that_also_holds_user_text_is_never_collapsed() -> None:
    """Exception: the user's words would be lost."""
    mixed = results("a", text="x" * 400)
    mixed["content"].append({"type": "text", "text": "and please hurry"})

    assert run([OLD[0], OLD[1], mixed, *OLD[3:]], collapse(0)).edits == []


def test_a_call_that_still_waits_is_never_collapsed() -> None:
    """Exception: the trailing call is the live step."""
    assert run([user("go"), calls("a", name="grep")], collapse(0)).edits == []


def test_the_text_is_the_later_one_of_the_seed() -> None:
    """Synthetic collapse message format: "[Tool: {tool_name} | Result summarized — called {N} turns ago]"."""
    messages = [user("go"), calls("a", name="read_file"), results("a", text=LONG), *(user("x") for _ in range(12))]

    assert plain(run(messages, collapse(5)))[1] == assistant(
        "[Tool: read_file | Result summarized — called 12 turns ago]"
    )


def test_a_pair_shorter_than_the_text_is_left_alone() -> None:
    """Exception (promise 5): the message would be longer than the pair."""
    assert run([user("go"), calls("a"), results("a", text="ok"), *OLD[3:]], collapse(0)).edits == []


def test_without_a_cap_nothing_is_compressed() -> None:
    """Risks: "Callers who need full fidelity don't set `maxToolResultTokens`."."""
    assert run([user("go"), calls("a"), results("a", text=LONG)], {}).edits == []


def test_a_stub_keeps_call_and_result_and_never_touches_the_input() -> None:
    """Risks: "Collapsed chains lose the tool result payload"; `stub`, ours, keeps the call beside it."""
    kept = plain(run(OLD, {"collapse": {"after_turns": 0, "into": "stub"}}))

    assert kept[1] == OLD[1]
    assert kept[2]["content"][0]["tool_use_id"] == "a"
    assert len(kept[2]["content"][0]["content"]) < 400


def test_multi_tool_turns_collapse_where_the_policy_says_so() -> None:
    """Risks: "Multi-tool pair collapsing can be added in V2": a line for each call."""
    messages = [user("go"), calls("a", "b", name="grep"), results("a", "b", text="x" * 400), *OLD[3:]]

    kept = plain(run(messages, collapse(2, multi_tool=True)))

    assert kept == [OLD[0], assistant(f"{SAID['content']}\n{SAID['content']}"), *OLD[3:]]


def test_results_are_capped_before_old_pairs_collapse() -> None:
    """Open Questions: "compress first (reduce individual result size), then collapse"."""
    policy = {**collapse(2), "compress": {"max_tool_result_tokens": 30}}

    assert [edit.stage for edit in run(OLD, policy).edits] == ["compress", "collapse", "collapse"]


def test_collapsing_is_off_when_after_turns_is_unset() -> None:
    """Open Questions: "No default [...] Explicit opt-in only."."""
    assert run(OLD, {"collapse": {"into": "assistant"}}).edits == []

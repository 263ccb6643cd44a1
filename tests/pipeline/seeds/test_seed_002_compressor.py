"""Seed 002, statement by statement: results capped with a mark, old single-tool pairs collapsed into one message."""

import pytest

from tests.pipeline.arrays import assistant, calls, plain, results, run, user


def cap(tokens: int) -> dict[str, object]:
    return {"count": "chars/4", "compress": {"max_tool_result_tokens": tokens}}


def collapse(after: int, **more: object) -> dict[str, object]:
    return {"count": "chars/4", "collapse": {"after_turns": after, "into": "assistant", "multi_tool": False, **more}}


def test_a_long_result_is_cut_to_four_characters_a_token_and_marked() -> None:
    messages = [user("go"), calls("a"), results("a", text="x" * 1_000)]

    assert plain(run(messages, cap(10)))[2] == results("a", text="x" * 40 + "\n[truncated]")


def test_the_id_and_the_block_type_stay_and_the_input_is_not_mutated() -> None:
    block = plain(run([user("go"), calls("a"), results("a", text="x" * 1_000)], cap(10)))[2]["content"][0]

    assert (block["type"], block["tool_use_id"]) == ("tool_result", "a")


@pytest.mark.parametrize("length", [0, 39, 40, 43, 44, 45])
def test_a_result_that_would_not_shrink_is_left_alone(length: int) -> None:
    messages = [user("go"), calls("a"), results("a", text="x" * length)]

    assert plain(run(messages, cap(10))) == messages


def test_a_capped_result_is_known_again() -> None:
    messages = [user("go"), calls("a"), results("a", text="x" * 40 + "\n[truncated]")]

    assert run(messages, cap(10)).edits == []


def test_without_a_cap_nothing_is_compressed() -> None:
    assert run([user("go"), calls("a"), results("a", text="x" * 1_000)], {}).edits == []


OLD = [user("go"), calls("a", name="grep"), results("a", text="x" * 400), assistant("so"), user("and"), assistant("on")]


def test_an_old_pair_becomes_one_assistant_message_with_the_seeds_text() -> None:
    said = "[Tool: grep | Result summarized — called 3 turns ago]"

    assert plain(run(OLD, collapse(2))) == [OLD[0], assistant(said), *OLD[3:]]


def test_a_pair_within_after_turns_is_left_alone() -> None:
    assert run(OLD, collapse(3)).edits == []


def test_collapsing_is_off_when_after_turns_is_unset() -> None:
    assert run(OLD, {"collapse": {"into": "assistant"}}).edits == []


def test_multi_tool_turns_are_left_intact_under_the_preset() -> None:
    messages = [user("go"), calls("a", "b"), results("a", "b", text="x" * 400), *OLD[3:]]

    assert run(messages, collapse(0)).edits == []


def test_results_are_capped_before_old_pairs_collapse() -> None:
    policy = {**collapse(2), "compress": {"max_tool_result_tokens": 30}}

    assert [edit.stage for edit in run(OLD, policy).edits] == ["compress", "collapse", "collapse"]


def test_a_result_message_that_also_holds_user_text_is_never_collapsed() -> None:
    mixed = results("a", text="x" * 400)
    mixed["content"].append({"type": "text", "text": "and please hurry"})

    assert run([OLD[0], OLD[1], mixed, *OLD[3:]], collapse(0)).edits == []


def test_a_stub_keeps_call_and_result_and_never_touches_the_input() -> None:
    kept = plain(run(OLD, {"collapse": {"after_turns": 0, "into": "stub"}}))

    assert kept[1] == OLD[1]
    assert kept[2]["content"][0]["tool_use_id"] == "a"
    assert len(kept[2]["content"][0]["content"]) < 400

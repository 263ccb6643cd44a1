"""Seed 000, statement by statement: three strategies, pairs kept whole, never below the last message.

Exception to the seed: an Anthropic array must start with a user message, so the first one is kept in front when a cut
would leave the assistant there (promise 1).
"""

from typing import Any

import pytest

from tests.pipeline.arrays import assistant, calls, plain, results, run, user

TALK = [user("one"), assistant("two"), user("three"), assistant("four"), user("five")]


def window(turns: int) -> dict[str, Any]:
    return {"prune": {"strategy": "sliding_window", "max_turns": turns}}


def test_the_window_keeps_the_last_turns_counted_as_messages() -> None:
    assert plain(run(TALK, window(3))) == TALK[-3:]


def test_a_cut_inside_a_pair_moves_earlier_and_may_keep_more_than_max_turns() -> None:
    messages = [user("go " * 40), user("now"), calls("a"), results("a"), assistant("done")]

    assert plain(run(messages, window(2)))[-3:] == messages[-3:]


def test_the_first_user_message_is_kept_in_front_when_the_provider_needs_it() -> None:
    messages = [user("go"), calls("a"), results("a"), calls("b"), results("b")]

    assert plain(run(messages, window(2))) == [messages[0], *messages[-2:]]


@pytest.mark.parametrize("turns", [0, 1])
def test_the_most_recent_user_message_always_stays(turns: int) -> None:
    assert plain(run(TALK, window(turns))) == TALK[-1:]


def test_without_tool_calls_the_pair_guard_is_a_no_op() -> None:
    assert plain(run(TALK, window(1))) == TALK[-1:]


def test_summarize_replaces_older_turns_by_one_user_message_that_counts_them() -> None:
    messages = [user("long " * 40), assistant("answer " * 40), *TALK[-2:]]

    assert plain(run(messages, {"prune": {"strategy": "summarize", "max_turns": 2}})) == [
        user("[Previous context summarized: 2 turns]"),
        *TALK[-2:],
    ]


def test_the_summary_is_a_user_message_whatever_the_format() -> None:
    messages = [user("long " * 40), assistant("answer " * 40), *TALK[-2:]]

    kept = plain(run(messages, {"prune": {"strategy": "summarize", "max_turns": 2}}, "openai-chat"))

    assert kept[0] == user("[Previous context summarized: 2 turns]")


def test_summaries_of_earlier_runs_are_merged() -> None:
    messages = [user("[Previous context summarized: 7 turns]"), user("long " * 40), assistant("more " * 40), *TALK[-2:]]

    assert plain(run(messages, {"prune": {"strategy": "summarize", "max_turns": 2}}))[0] == user(
        "[Previous context summarized: 9 turns]"
    )


def test_a_summary_longer_than_what_it_replaces_is_not_written() -> None:
    assert plain(run(TALK, {"prune": {"strategy": "summarize", "max_turns": 3}})) == TALK[-3:]


def test_importance_drops_plain_old_turns_before_tool_rounds_and_long_answers() -> None:
    messages = [user("first"), calls("a"), results("a"), user("hm"), assistant("x" * 5_000), user("last")]

    kept = plain(run(messages, {"prune": {"strategy": "importance", "max_turns": 5}, "thinking": "keep"}))

    assert kept == [message for message in messages if message != user("hm")]


def test_importance_drops_a_pair_whole_or_not_at_all() -> None:
    messages = [user("first"), calls("a"), results("a"), calls("b"), results("b"), user("last")]

    kept = plain(run(messages, {"prune": {"strategy": "importance", "max_turns": 3}}))

    assert (messages[1] in kept) == (messages[2] in kept)
    assert (messages[3] in kept) == (messages[4] in kept)


@pytest.mark.parametrize("strategy", ["sliding_window", "summarize", "importance"])
def test_same_input_and_config_give_the_same_output(strategy: str) -> None:
    policy = {"prune": {"strategy": strategy, "max_turns": 2}}

    assert run(TALK, policy) == run(TALK, policy)

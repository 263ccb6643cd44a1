"""Seed 001, statement by statement: over the token limit the oldest go, pairs whole, behind one notice.

Exceptions to the seed: its sample walks newest first, its text says oldest first; its error on an invalid result is our
fallback; the notice stands where the provider accepts it, and is left out where it is longer than what it replaces.
"""

import pytest

from pipeline import find_tool_results_for_call, validate_message_sequence
from tests.pipeline.arrays import assistant, chat_calls, chat_result, plain, raws, run, user

NOTICE = "Earlier messages have been pruned. Tool operations included: {}."


def budget(tokens: int) -> dict[str, object]:
    return {"count": "chars/4", "prune": {"strategy": "token_budget", "max_tokens": tokens}}


def test_find_tool_results_for_call_finds_matching() -> None:
    messages = raws([chat_calls("call_1", name="analyze"), chat_result("call_1"), chat_result("call_2")])

    assert find_tool_results_for_call(messages, "call_1") == [1]


def test_find_tool_results_for_call_returns_empty_when_none() -> None:
    assert find_tool_results_for_call(raws([user("No tool calls")]), "missing") == []


def test_find_tool_results_for_call_ignores_other_roles() -> None:
    messages = raws([user("call_1"), assistant("call_1"), chat_result("call_1")])

    assert find_tool_results_for_call(messages, "call_1", "openai-chat") == [2]


def test_prune_preserves_a_pair_when_both_are_in_the_retain_window() -> None:
    messages = [user("Keep this"), chat_calls("call_1"), chat_result("call_1", "Found: ...")]

    assert plain(run(messages, "xzatoma", "openai-chat")) == messages


def test_prune_removes_both_when_the_assistant_is_in_the_prune_zone() -> None:
    recent = [message for i in range(20) for message in (user(f"Question {i} " + "?" * 80), assistant("Response"))]
    messages = [user("Old question"), chat_calls("call_1", name="analyze"), chat_result("call_1", "r" * 400), *recent]

    kept = plain(run(messages, budget(300), "openai-chat"))

    assert kept[0] == {"role": "system", "content": NOTICE.format("analyze")}
    assert user("Old question") not in kept
    assert not any(message["role"] == "tool" or message.get("tool_calls") for message in kept)
    assert kept[-1] == assistant("Response")


def test_the_notice_names_each_tool_once_in_the_order_of_first_use() -> None:
    rounds = [
        m for n, i in zip("abab", "1234", strict=True) for m in (chat_calls(i, name=n), chat_result(i, "r" * 400))
    ]

    kept = plain(run([*rounds, user("go on")], budget(60), "openai-chat"))

    assert kept == [{"role": "system", "content": NOTICE.format("a, b")}, user("go on")]


def test_without_tools_the_notice_is_the_plain_one() -> None:
    kept = plain(run([*(user("old " * 100) for _ in range(5)), user("new")], budget(50), "openai-chat"))

    assert kept == [
        {"role": "system", "content": "Earlier messages have been pruned to manage token usage."},
        user("new"),
    ]


def test_a_later_run_merges_the_notices() -> None:
    earlier = {"role": "system", "content": NOTICE.format("a, b")}
    messages = [earlier, chat_calls("1", name="c"), chat_result("1", "r" * 800), user("go on")]

    assert plain(run(messages, budget(60), "openai-chat"))[0] == {"role": "system", "content": NOTICE.format("a, b, c")}


@pytest.mark.parametrize("limit", [10, 40, 80, 160, 320])
def test_no_orphan_tool_message_remains_at_any_limit(limit: int) -> None:
    rounds = [m for i in range(10) for m in (user("q " * 20), chat_calls(f"c{i}"), chat_result(f"c{i}", "r" * 60))]

    pruned = run([*rounds, user("end")], budget(limit), "openai-chat")

    assert isinstance(pruned.messages, list)
    assert validate_message_sequence(pruned.messages, "openai-chat") == []


def test_under_the_limit_nothing_happens() -> None:
    assert run([user("First"), assistant("Answer")], "xzatoma", "openai-chat").status == "unchanged"

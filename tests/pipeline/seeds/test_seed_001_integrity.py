"""Seed 001 in its own order: over the token limit the oldest go, pairs whole, behind one notice.

Exceptions to the seed: its sample walks newest first, its text says oldest first; its scenario shortens the notice that
its code spells out; its error on an invalid result is our fallback; the notice stands where the provider accepts it,
and is left out where it is longer than what it replaces (promise 5).
"""

import time
from typing import Any

import pytest

import pipeline.run
from contracts import PRESETS, Code, Policy
from pipeline import find_tool_results_for_call, validate_message_sequence
from pipeline.conversation import Conversation
from pipeline.edits import Editor, StageResult
from tests.pipeline.arrays import assistant, calls, chat_calls, chat_result, plain, raws, results, run, user

NOTICE = "Earlier messages have been pruned. Tool operations included: {}."
PLAIN_NOTICE = "Earlier messages have been pruned to manage token usage."
Items = list[dict[str, Any]]


def budget(tokens: int) -> dict[str, object]:
    return {"count": "chars/4", "prune": {"strategy": "token_budget", "max_tokens": tokens}}


def pruned(messages: Items, tokens: int) -> Items:
    return plain(run(messages, budget(tokens), "openai-chat"))


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def call(text: str, call_id: str, name: str) -> dict[str, Any]:
    return {**chat_calls(call_id, name=name), "content": text}


def has_tools(messages: Items) -> bool:
    return any(message["role"] == "tool" or message.get("tool_calls") for message in messages)


SCENARIO = [
    user("First request"),
    call("I'll analyze this", "call_1", "analyze_data"),
    chat_result("call_1", "Analysis result: " + "data " * 100),
    user("Second request"),
    assistant("Response to second request"),
    user("Third request"),
]
RETAINED = SCENARIO[3:]


def test_scenario_1_a_pair_is_never_split_whatever_the_limit() -> None:
    """Scenario 1: "if only [2] is removed [...] assistant called tool but no result!"."""
    for limit in range(1, 200):
        kept = pruned(SCENARIO, limit)

        assert (SCENARIO[1] in kept) == (SCENARIO[2] in kept)


def test_scenario_1_what_the_removed_tool_did_is_not_lost_silently() -> None:
    """Scenario 1: "What happened to the tool call/result pair? Lost context."."""
    assert "analyze_data" in pruned(SCENARIO, 40)[0]["content"]


def test_scenario_2_the_pair_goes_as_one_and_a_summary_stands_for_it() -> None:
    """Scenario 2: "Entire pair [1,2] removed as atomic unit, context preserved via summary"."""
    assert pruned(SCENARIO, 40) == [system(NOTICE.format("analyze_data")), *RETAINED]


def test_step_1_the_token_usage_decides() -> None:
    """Algorithm 1 and `prune_if_needed`: at or under the limit, nothing is done."""
    size = run(SCENARIO, budget(1_000), "openai-chat").tokens.before

    assert run(SCENARIO, budget(size), "openai-chat").status == "unchanged"
    assert run(SCENARIO, budget(size - 1), "openai-chat").status == "pruned"


def test_under_the_limit_nothing_happens() -> None:
    """The preset's limit is its own: the seed names a TOKEN_LIMIT and no figure."""
    assert PRESETS["xzatoma"]["prune"] == {"strategy": "token_budget", "max_tokens": 100_000}
    assert run([user("First"), assistant("Answer")], "xzatoma", "openai-chat").status == "unchanged"


def test_step_2_pairs_are_found_whatever_stands_between_call_and_result() -> None:
    """Algorithm 2: "Identify tool-call/result pairs in the message sequence", parallel ones too."""
    messages = [user("go " * 100), chat_calls("a", "b"), chat_result("b"), chat_result("a"), user("end")]

    assert pruned(messages, 1)[1:] == [user("end")]
    assert pruned(messages, 40)[1:] == messages[1:]


def test_step_3_a_pair_that_the_boundary_splits_is_removed() -> None:
    """Algorithm 3: "any part of pair is in the prune zone and any part is in retain zone: remove entire pair"."""
    messages = [user("old " * 30), call("x" * 40, "a", "fetch"), chat_result("a", "r" * 400), user("end")]

    assert pruned(messages, 125) == [system(NOTICE.format("fetch")), user("end")]


def test_step_3_a_pair_in_the_prune_zone_is_removed_and_one_in_the_retain_zone_is_kept() -> None:
    """Algorithm 3: "entire pair is in prune zone: remove it"; "entire pair is in retain zone: keep it"."""
    old, new = [call("x" * 400, "a", "old_tool"), chat_result("a")], [call("y", "b", "new_tool"), chat_result("b")]

    assert pruned([*old, *new, user("end")], 50) == [system(NOTICE.format("old_tool")), *new, user("end")]


def test_step_4_the_notice_names_each_tool_once_in_the_order_of_first_use() -> None:
    """Algorithm 4: "Replace removed content with a summary message"; the sample would repeat a name."""
    rounds = [
        m for n, i in zip("abab", "1234", strict=True) for m in (chat_calls(i, name=n), chat_result(i, "r" * 400))
    ]

    assert pruned([*rounds, user("go on")], 60) == [system(NOTICE.format("a, b")), user("go on")]


def test_step_4_without_tools_the_notice_is_the_plain_one() -> None:
    """Sample: `removed_tools.is_empty()`."""
    assert pruned([*(user("old " * 100) for _ in range(5)), user("new")], 50) == [system(PLAIN_NOTICE), user("new")]


def test_step_4_a_later_run_merges_the_notices() -> None:
    """Sample: one summary message at the front, not one for each run."""
    messages = [system(NOTICE.format("a, b")), chat_calls("1", name="c"), chat_result("1", "r" * 800), user("go on")]

    assert pruned(messages, 60) == [system(NOTICE.format("a, b, c")), user("go on")]


def test_step_4_the_notice_stands_behind_the_system_prompt() -> None:
    """Exception: the sample inserts at 0; the instructions stay first, and are no part of what is pruned."""
    messages = [system("rules"), user("old " * 100), user("new")]

    assert pruned(messages, 50) == [system("rules"), system(PLAIN_NOTICE), user("new")]


def test_step_4_the_notice_is_a_user_message_where_the_provider_has_no_system_role() -> None:
    """Exception (promise 1): `Message::system` at 0 is refused by the Messages API."""
    messages = [user("old " * 100), calls("a", name="fetch"), results("a", text="r" * 400), user("new")]

    assert plain(run(messages, budget(50))) == [user(NOTICE.format("fetch")), user("new")]


def test_step_4_a_notice_longer_than_what_it_replaces_is_left_out() -> None:
    """Exception (promise 5): the result is never larger."""
    assert pruned([user("What?"), user("Why?"), user("Q3" * 40)], 21) == [user("Q3" * 40)]


@pytest.mark.parametrize("limit", [10, 40, 80, 160, 320])
def test_step_5_no_orphan_tool_message_remains_at_any_limit(limit: int) -> None:
    """Algorithm 5: "Verify no orphan tool messages remain"."""
    rounds = [m for i in range(10) for m in (user("q " * 20), chat_calls(f"c{i}"), chat_result(f"c{i}", "r" * 60))]

    result = run([*rounds, user("end")], budget(limit), "openai-chat")

    assert isinstance(result.messages, list)
    assert validate_message_sequence(result.messages, "openai-chat") == []


def test_step_5_an_invalid_result_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exception: where the seed returns an error, the last valid array is published and the rule named."""

    def split_the_pair(conversation: Conversation, _: Policy) -> StageResult:
        editor = Editor(conversation, "prune")
        editor.drop(2, Code.TOKEN_BUDGET)
        return editor.result()

    monkeypatch.setattr(pipeline.run, "STAGES", (("prune", split_the_pair), pipeline.run.STAGES[-1]))
    result = run(SCENARIO, {}, "openai-chat")

    assert (result.status, plain(result)) == ("fallback", SCENARIO)
    assert result.reason == ["stage_undone", "openai-chat.unanswered_call"]


def test_the_oldest_go_first() -> None:
    """Sample comment: "from oldest to newest"; its code walks newest first, which would drop the question."""
    messages = [user(f"{i} " * 100) for i in range(10)]

    assert pruned(messages, 180)[1:] == messages[-3:]


def test_find_tool_results_for_call_gives_every_index() -> None:
    """Helper: "Vector of indices where tool results for this call appear"."""
    messages = raws([chat_calls("a"), chat_result("a"), user("a"), chat_calls("a"), chat_result("a")])

    assert find_tool_results_for_call(messages, "a", "openai-chat") == [1, 4]


def test_find_tool_results_for_call_finds_matching() -> None:
    """Test 1."""
    messages = raws([call("I'll help", "call_1", "analyze"), chat_result("call_1"), chat_result("call_2", "other")])

    assert find_tool_results_for_call(messages, "call_1") == [1]


def test_find_tool_results_for_call_returns_empty_when_none() -> None:
    """Test 2."""
    assert find_tool_results_for_call(raws([user("No tool calls")]), "missing") == []


def test_find_tool_results_for_call_ignores_other_roles() -> None:
    """Test 3."""
    messages = raws([user("call_1"), assistant("call_1"), chat_result("call_1")])

    assert find_tool_results_for_call(messages, "call_1", "openai-chat") == [2]


def test_prune_preserves_tool_call_pair_when_both_in_retain_window() -> None:
    """Test 4."""
    messages = [user("Keep this"), call("Calling tool", "call_1", "search"), chat_result("call_1", "Found: ...")]

    assert plain(run(messages, "xzatoma", "openai-chat")) == messages


def test_prune_removes_both_when_assistant_in_prune_zone() -> None:
    """Test 5."""
    recent = [message for i in range(20) for message in (user(f"Question {i} " + "?" * 80), assistant("Response"))]
    old = [user("Old question"), call("Calling tool", "call_1", "analyze"), chat_result("call_1", "Result" * 60)]

    kept = pruned([*old, *recent], 300)

    assert user("Question 19 " + "?" * 80) in kept
    assert user("Old question") not in kept
    assert not has_tools(kept)


def test_prune_creates_summary_message() -> None:
    """Test 6."""
    old = [user("First"), call("Using search", "call_1", "search"), chat_result("call_1", "Results" * 20)]

    kept = pruned([*old, *(user(f"Q{i} " + "?" * 40) for i in range(30))], 200)

    assert kept[0]["role"] == "system"
    assert "pruned" in kept[0]["content"]
    assert "search" in kept[0]["content"]


def test_a_typical_conversation_takes_less_than_five_milliseconds() -> None:
    """Performance: "Typical conversation: 20-100 messages, <5ms pruning time"; the fastest of several runs."""
    rounds = [m for i in range(33) for m in (user("q " * 200), chat_calls(f"c{i}"), chat_result(f"c{i}", "r" * 800))]
    taken = []
    for _ in range(20):
        start = time.perf_counter()
        run(rounds, budget(2_000), "openai-chat")
        taken.append(time.perf_counter() - start)

    assert min(taken) < 0.005


def test_what_stays_is_as_it_came() -> None:
    """Backward Compatibility: "no message structure changes"."""
    result = run(SCENARIO, budget(40), "openai-chat")

    assert isinstance(result.messages, list)
    assert [bytes(item) for item in result.messages[1:]] == [bytes(item) for item in raws(RETAINED)]


def test_example_1_pruning_preserves_recent_conversation() -> None:
    """Example 1: "Old messages pruned, summary added, recent messages retained"."""
    old = [
        user("First question"),
        call("I'll search for that", "call_1", "search"),
        chat_result("call_1", "Found articles about topic"),
        assistant("Here are the results..."),
    ]
    recent = [message for i in range(50) for message in (user(f"Question {i}"), assistant(f"Answer to {i}"))]

    kept = pruned([*old, *recent], 200)

    assert kept[0] == system(NOTICE.format("search"))
    assert len(kept) < 50 * 2
    assert kept[1:] == recent[-len(kept[1:]) :]


def test_example_2_tool_pair_atomicity() -> None:
    """Example 2: "Messages 100-102 (tool pair) will be removed atomically"."""
    old = [user(f"Old {i}") for i in range(100)]
    pair = [call("Using data_fetch", "call_boundary", "data_fetch"), chat_result("call_boundary", "Large dataset")]
    recent = [user(f"Recent {i}") for i in range(20)]
    messages = [*old, user("Boundary question"), *pair, *recent]
    size = run(messages, budget(1_000), "openai-chat").tokens.before

    assert pruned(messages, 60) == [system(NOTICE.format("data_fetch")), *recent]
    for limit in range(1, size):
        kept = pruned(messages, limit)
        assert (pair[0] in kept) == (pair[1] in kept)
        assert (pair[0] in kept) != ("data_fetch" in kept[0]["content"])

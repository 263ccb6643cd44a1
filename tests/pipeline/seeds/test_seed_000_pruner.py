"""Seed 000 in its own order, each test under the sentence it holds us to: three strategies, pairs whole, never empty.

Exceptions to the seed: an Anthropic array must start with a user message, so the first one is kept in front when a cut
would leave the assistant there (promise 1), and importance lets it go last for the same reason; a summary is not
written where it is longer than what it replaces (promise 5).
"""

from typing import Any

import pytest

from contracts import PRESETS, Refused, load_policy
from contracts.policy import SlidingWindow
from pipeline import prune_messages, validate_message_sequence
from pipeline.conversation import read_conversation
from pipeline.strategies.importance import ANSWER_LENGTH, RECENCY, TOOL_CALLS, score
from pipeline.tokens import chars_over_four
from tests.pipeline.arrays import assistant, calls, plain, raws, results, run, user

STRATEGIES = ["sliding_window", "summarize", "importance"]
TALK = [user("one"), assistant("two"), user("three"), assistant("four"), user("five")]
ROUNDS = [user("go"), *(m for i in "abcdef" for m in (calls(i), results(i, text="r" * 200))), user("end")]


def window(turns: int, strategy: str = "sliding_window") -> dict[str, Any]:
    return {"prune": {"strategy": strategy, "max_turns": turns}}


def scores(messages: list[dict[str, Any]]) -> list[float]:
    conversation = read_conversation(raws(messages), "anthropic", chars_over_four)
    return [score(conversation, index) for index in range(len(messages))]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("turns", range(len(ROUNDS) + 1))
def test_a_tool_use_and_its_result_stay_or_go_together(strategy: str, turns: int) -> None:
    """Context: "Dropping one without the other produces an invalid request that the API will reject."."""
    pruned = run(ROUNDS, window(turns, strategy))

    assert isinstance(pruned.messages, list)
    assert validate_message_sequence(pruned.messages, "anthropic") == []
    assert pruned.status in ("pruned", "unchanged")


def test_the_array_is_kept_within_a_configurable_turn_count() -> None:
    """Goals: "Keep the messages array within a configurable turn count or size bound"."""
    assert [len(plain(run(TALK, window(turns)))) for turns in (1, 3, 5, 9)] == [1, 3, 5, 5]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_three_strategies_are_there(strategy: str) -> None:
    """Goals: "Support all three `PrunerStrategy` values"."""
    assert run(ROUNDS, window(3, strategy)).status == "pruned"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_same_input_and_config_give_the_same_output(strategy: str) -> None:
    """Goals: "Be deterministic"."""
    assert run(ROUNDS, window(2, strategy)) == run(ROUNDS, window(2, strategy))


def test_no_token_budget_is_enforced() -> None:
    """Non-Goals: "Counting tokens in messages to enforce a token budget"."""
    assert plain(run([user("x" * 1_000_000), *TALK], "beskar")) == [user("x" * 1_000_000), *TALK]


def test_nothing_is_remembered_from_one_run_to_the_next() -> None:
    """Non-Goals: "Cross-session memory"."""
    alone = run(TALK, window(2))
    run(ROUNDS, window(2))

    assert run(TALK, window(2)) == alone


def test_prune_messages_returns_a_new_array_and_does_not_mutate_its_input() -> None:
    """Function shape: "Pure function. [...] Returns a new array. [...] does not mutate input."."""
    messages = raws(TALK)
    before = [bytes(message) for message in messages]

    kept = prune_messages(messages, SlidingWindow(2))

    assert [bytes(message) for message in kept] == before[:1] + before[-2:]
    assert [bytes(message) for message in messages] == before


def test_the_window_keeps_the_last_turns() -> None:
    """Sliding window: "Keep the last `maxTurns` turns"."""
    assert plain(run(TALK, window(3))) == TALK[-3:]


def test_a_cut_inside_a_pair_moves_earlier() -> None:
    """Sliding window: "shift the cut point earlier to preserve the pair"."""
    messages = [user("go " * 40), user("now"), calls("a"), results("a"), assistant("done")]

    assert plain(run(messages, window(2)))[-3:] == messages[-3:]


def test_the_first_user_message_is_kept_in_front_when_the_provider_needs_it() -> None:
    """Exception (promise 1): the seed's cut would leave an array that starts with the assistant."""
    messages = [user("go"), calls("a"), results("a"), calls("b"), results("b")]

    assert plain(run(messages, window(2))) == [messages[0], *messages[-2:]]


def test_summarize_replaces_older_turns_by_one_user_message_that_counts_them() -> None:
    """Summarize: "a single synthetic user message: [Previous context summarized: N turns]"."""
    messages = [user("long " * 40), assistant("answer " * 40), *TALK[-2:]]

    assert plain(run(messages, window(2, "summarize"))) == [
        user("[Previous context summarized: 2 turns]"),
        *TALK[-2:],
    ]


def test_the_summary_is_a_user_message_whatever_the_format() -> None:
    """Summarize: "synthetic user message", also where a system message would be accepted."""
    messages = [user("long " * 40), assistant("answer " * 40), *TALK[-2:]]

    kept = plain(run(messages, window(2, "summarize"), "openai-chat"))

    assert kept[0] == user("[Previous context summarized: 2 turns]")


def test_the_summary_counts_a_pair_at_the_boundary_only_when_it_went() -> None:
    """Summarize: "turns older than the window", whose cut keeps pairs as the window's does."""
    messages = [user("long " * 40), calls("a"), results("a"), user("last")]

    kept = plain(run(messages, window(2, "summarize")))

    assert kept == [user("[Previous context summarized: 1 turns]"), *messages[1:]]


def test_summaries_of_earlier_runs_are_merged() -> None:
    """Summarize: "a single" message, also when the array holds one from before."""
    messages = [user("[Previous context summarized: 7 turns]"), user("long " * 40), assistant("more " * 40), *TALK[-2:]]

    kept = plain(run(messages, window(2, "summarize")))

    assert kept == [user("[Previous context summarized: 9 turns]"), *TALK[-2:]]


def test_a_summary_longer_than_what_it_replaces_is_not_written() -> None:
    """Exception (promise 5): the placeholder would make the array larger."""
    assert plain(run(TALK, window(3, "summarize"))) == TALK[-3:]


def test_the_summary_model_is_not_an_option_yet() -> None:
    """Summarize: "the `summaryModel` field is reserved for V2"."""
    with pytest.raises(Refused, match="unknown field 'summary_model'"):
        load_policy({"prune": {"strategy": "summarize", "max_turns": 2, "summary_model": "any"}})


def test_every_score_is_between_0_and_1() -> None:
    """Importance: "Score each turn 0-1"."""
    assert pytest.approx(1) == RECENCY + TOOL_CALLS + ANSWER_LENGTH
    assert all(0 <= value <= 1 for value in scores([*ROUNDS, assistant("x" * 100_000)]))


def test_newer_turns_score_higher() -> None:
    """Importance: "recency (newer = higher)"."""
    found = scores([user("same"), user("same"), user("same")])

    assert found == sorted(found)
    assert len(set(found)) == 3


def test_tool_calls_score_higher() -> None:
    """Importance: "presence of tool calls (higher)"."""
    with_tool, plain_turn = scores([user("go"), calls("a"), results("a")]), scores([user("go")] * 3)

    assert with_tool[1] > plain_turn[1]
    assert with_tool[2] > plain_turn[2]


def test_longer_assistant_turns_score_higher() -> None:
    """Importance: "assistant turn length (longer = potentially higher signal)"; a long user turn does not."""
    short, long = scores([user("go"), assistant("x")]), scores([user("go"), assistant("x" * 1_000)])

    assert long[1] > short[1]
    assert scores([user("x" * 1_000), assistant("x")]) == short


def test_importance_drops_plain_old_turns_before_tool_rounds_and_long_answers() -> None:
    """Importance: "Drop the lowest-scoring turns first"."""
    messages = [user("first"), calls("a"), results("a"), user("hm"), assistant("x" * 5_000), user("last")]

    kept = plain(run(messages, {**window(5, "importance"), "thinking": "keep"}))

    assert kept == [message for message in messages if message != user("hm")]


def test_importance_drops_a_pair_whole_or_not_at_all() -> None:
    """Importance: "again respecting tool pair atomicity"."""
    messages = [user("first"), calls("a"), results("a"), calls("b"), results("b"), user("last")]

    kept = plain(run(messages, window(3, "importance")))

    assert (messages[1] in kept) == (messages[2] in kept)
    assert (messages[3] in kept) == (messages[4] in kept)


def test_pairs_are_identified_by_their_id() -> None:
    """Tool pair detection: "Pairs are identified by matching `tool_use_id`"; parallel calls are one pair."""
    messages = [user("go"), calls("a", "b"), results("b", "a"), user("last")]

    assert plain(run(messages, window(2))) == messages
    assert plain(run(messages, window(1))) == messages[-1:]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("turns", [0, 1])
def test_the_most_recent_user_message_always_stays(turns: int, strategy: str) -> None:
    """Minimum retained turns: "Never prune below 1 turn"; "If `maxTurns` is set to 0 [...] retain the last turn"."""
    assert plain(run(TALK, window(turns, strategy)))[-1:] == TALK[-1:]
    assert plain(run(TALK[-1:], window(turns, strategy))) == TALK[-1:]


def test_a_pair_at_the_boundary_may_retain_more_than_max_turns() -> None:
    """Risks: "This may result in retaining slightly more turns than `maxTurns` in edge cases."."""
    messages = [user("go"), user("now"), calls("a"), results("a")]

    assert plain(run(messages, window(1))) == [messages[0], *messages[2:]]


def test_the_weights_are_constants_and_not_configurable() -> None:
    """Risks: "Weights are fixed constants in V1, not configurable"."""
    assert (RECENCY, TOOL_CALLS, ANSWER_LENGTH) == (0.5, 0.3, 0.2)
    with pytest.raises(Refused, match="unknown field 'weights'"):
        load_policy({"prune": {"strategy": "importance", "max_turns": 2, "weights": {}}})


def test_max_turns_counts_messages() -> None:
    """Open Questions: "Count individual messages for simplicity"."""
    assert load_policy("beskar").turn == "message"
    assert PRESETS["beskar"]["prune"] == {"strategy": "sliding_window", "max_turns": 40}
    assert len(plain(run([user("x")] * 50, "beskar"))) == 40


@pytest.mark.parametrize("strategy", ["sliding_window", "importance"])
def test_without_tool_calls_the_pair_guard_is_a_no_op(strategy: str) -> None:
    """Open Questions: "sliding window and importance strategies work identically"."""
    assert plain(run(TALK, window(1, strategy), "openai-chat")) == TALK[-1:]
    assert plain(run(TALK, window(3, strategy), "openai-chat")) == TALK[-3:]


def test_importance_lets_the_first_prompt_go_last_where_a_user_must_speak_first() -> None:
    """Exception (promise 1): dropped as the oldest, it would have to be put back in front."""
    assert plain(run(TALK, window(3, "importance"))) == [TALK[0], *TALK[-2:]]

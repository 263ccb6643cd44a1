"""A compaction item of the provider: what stands before it goes for free, itself it stays under every strategy."""

from typing import Any

import pytest

from tests.pipeline.arrays import assistant, calls, plain, results, run, user

COMPACTION = {"role": "assistant", "content": [{"type": "compaction", "content": "The user asked for a fix."}]}
TALK = [user("first"), assistant("so"), COMPACTION, user("again"), assistant("done"), user("last")]

STRATEGIES = [
    {"strategy": "sliding_window", "max_turns": 1},
    {"strategy": "summarize", "max_turns": 1},
    {"strategy": "importance", "max_turns": 1},
    {"strategy": "token_budget", "max_tokens": 1},
    {"strategy": "middle_out", "last_turns": 1, "keep_middle_pairs": False},
    {"strategy": "steady", "keep_rounds": 1},
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy["strategy"])
def test_the_compaction_item_stays_whatever_the_strategy(strategy: dict[str, Any]) -> None:
    kept = plain(run(TALK, {"prune": strategy, "budget": {"max_tokens": 20}}))

    assert COMPACTION in kept
    assert kept[-1] == user("last")


def test_what_stands_before_it_goes_and_a_user_still_speaks_first() -> None:
    kept = plain(run(TALK, {"prune": {"strategy": "sliding_window", "max_turns": 1}}))

    assert kept == [user("first"), COMPACTION, user("last")]


def test_only_the_latest_stays() -> None:
    earlier = {"role": "assistant", "content": [{"type": "compaction", "content": "An older one."}]}

    kept = plain(run([user("zero"), earlier, *TALK], {"prune": {"strategy": "sliding_window", "max_turns": 1}}))

    assert kept == [user("zero"), COMPACTION, user("last")]


def test_a_front_that_was_mended_stays_mended_when_all_else_goes() -> None:
    policy = {"prune": {"strategy": "token_budget", "max_tokens": 1}}
    once = run([COMPACTION, calls("a"), user("Wait."), results("a")], policy)

    resumed = user("[The conversation continues from an earlier point]")
    assert plain(once) == [resumed, COMPACTION, user("Wait.")]
    assert run(plain(once), policy).edits == []

"""`steady` by example: when it cuts, what goes first, what stays, and what an echoed cut is worth."""

import sys
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from contracts import PRESETS, Cache, Cut, Pruned, Snapshot, Usage, load_policy
from contracts.policy import CachePrices
from pipeline import prune
from pipeline.notices import CLEARED, is_condensed, pruned_steps
from pipeline.steady.economics import break_even_calls
from tests.pipeline.arrays import assistant, calls, plain, raws, results, run, user

LOG = "\n".join(f"src/module_{n}.py:{n * 7} loads Handler{n} with retry_limit_{n}" for n in range(40))
ROOMY = {"max_tokens": 2_600, "low_water": 0.85}
TIGHT: dict[str, Any] = {"preset": "steady", "budget": {"max_tokens": 2_000, "low_water": 0.4}}


def rounds(count: int, text: str = LOG, name: str = "search", start: int = 0) -> list[dict[str, Any]]:
    made = []
    for number in range(start, start + count):
        made += [calls(f"t{number}", name=name), results(f"t{number}", text=f"job_{number} {text}")]
    return made


def texts(result: Pruned) -> list[str]:
    return [str(message["content"]) for message in plain(result)]


def reasons(result: Pruned) -> set[str]:
    return {edit.reason for edit in result.edits}


def notices_of(result: Pruned) -> list[str]:
    return [text for text in texts(result) if pruned_steps(text)[0]]


def test_it_is_the_default() -> None:
    assert load_policy("").name == "steady"
    assert load_policy("").budget is not None
    assert "steady" in PRESETS


def test_below_high_water_nothing_changes() -> None:
    result = run([user("go"), *rounds(1)], TIGHT)

    assert (result.status, result.cuts, result.edits) == ("unchanged", [], [])


def test_over_the_budget_it_cuts_to_low_water_and_says_where() -> None:
    result = run([user("go"), *rounds(4)], TIGHT)

    assert result.status == "pruned"
    assert result.tokens.after <= 2_000
    assert [cut.reason for cut in result.cuts] == ["hard_limit"] * len(result.cuts)
    assert result.cuts[0].tokens_after < result.cuts[0].tokens_before


def test_old_results_are_condensed_before_rounds_go() -> None:
    result = run([user("go"), *rounds(4)], {**TIGHT, "budget": {"max_tokens": 2_200, "low_water": 0.9}})

    assert reasons(result) == {"old_result"}
    condensed = plain(result)[2]["content"][0]["content"]
    assert is_condensed(condensed)
    assert plain(result)[-1]["content"][0]["content"] == f"job_3 {LOG}"


def test_dropped_rounds_leave_one_notice_with_tools_and_names() -> None:
    result = run([user("go"), *rounds(40)], TIGHT)

    (notice,) = notices_of(result)
    messages, tools, names = pruned_steps(notice)
    assert messages == sum(edit.reason == "old_round_dropped" for edit in result.edits)
    assert tools == ["search"]
    assert "job_3" in names


def test_system_first_prompt_last_prompt_and_last_rounds_stay() -> None:
    messages = [user("the task is in TASK.md"), *rounds(20), user("now look at b.py"), *rounds(20, start=20)]

    result = run(messages, TIGHT)

    assert plain(result)[0] == messages[0]
    assert user("now look at b.py") in plain(result)
    assert plain(result)[-2:] == messages[-2:]


def test_pinned_positions_and_protected_tools_stay() -> None:
    messages = [user("go"), *rounds(2, name="skill"), *rounds(20, start=2)]
    messages += [assistant("note this"), user("ok"), *rounds(20, start=22)]
    keep = {"tools": ["skill"], "positions": [45]}

    result = run(messages, {**TIGHT, "budget": {"max_tokens": 4_000}, "keep": keep})

    assert plain(result)[1:5] == messages[1:5]
    assert messages[45] in plain(result)


def test_what_cannot_fit_is_said_with_the_best_effort() -> None:
    result = run([user("go"), *rounds(3, text="x" * 40_000)], TIGHT)

    assert result.status == "cannot_fit"
    assert "over_budget" in result.reason
    assert result.tokens.after < result.tokens.before
    assert plain(result)[-2:] == rounds(3, text="x" * 40_000)[-2:]


def reading(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": name, "input": arguments}]}


def test_a_read_that_was_written_over_is_cleared_first() -> None:
    messages = [
        user("go"),
        reading("r1", "Read", file_path="a.py"),
        results("r1", text=LOG),
        reading("r2", "Read", file_path="b.py"),
        results("r2", text=LOG),
        reading("w1", "Write", file_path="a.py", content="new"),
        results("w1", text="ok"),
        *rounds(2),
    ]

    result = run(messages, {**TIGHT, "budget": {"max_tokens": 2_250, "low_water": 0.85}})

    assert plain(result)[2]["content"][0]["content"] == CLEARED
    assert plain(result)[4]["content"][0]["content"] == LOG
    assert reasons(result) == {"stale_read"}


@pytest.mark.parametrize(
    ("again", "is_stale"),
    [({"file_path": "a.py"}, True), ({"file_path": "a.py", "offset": 9}, False), ({"file_path": "b.py"}, False)],
    ids=["whole file again", "another part", "another file"],
)
def test_a_read_is_superseded_by_one_that_shows_as_much(again: dict[str, Any], is_stale: bool) -> None:
    messages = [
        user("go"),
        reading("r1", "Read", file_path="a.py"),
        results("r1", text=LOG),
        reading("r2", "Read", **again),
        results("r2", text=LOG),
        *rounds(3),
    ]

    result = run(messages, {**TIGHT, "budget": ROOMY})

    assert ("stale_read" in reasons(result)) == is_stale


def test_a_failed_call_that_was_made_again_is_cleared() -> None:
    failed = results("r1", text=LOG)
    failed["content"][0]["is_error"] = True
    messages = [
        user("go"),
        reading("r1", "bash", command="make"),
        failed,
        reading("r2", "bash", command="make"),
        results("r2"),
    ]

    result = run([*messages, *rounds(4)], {**TIGHT, "budget": ROOMY})

    assert "retried_call" in reasons(result)


def test_what_stands_before_a_compaction_item_goes_for_free() -> None:
    compaction = {"role": "assistant", "content": [{"type": "compaction", "content": "summary"}]}
    messages = [user("go"), *rounds(3), compaction, user("on"), *rounds(2, start=3)]

    result = run(messages, {**TIGHT, "budget": {"max_tokens": 2_500}})

    assert "before_compaction" in reasons(result)
    assert compaction in plain(result)
    assert not notices_of(result)


GROWING = [user("Fix src/app.py"), *rounds(60)]


def prefixes(messages: list[dict[str, Any]], max_tokens: int = 2_000) -> list[Pruned]:
    """Every request of a growing conversation, its cuts echoed."""
    found: list[Pruned] = []
    cuts: list[Cut] = []
    for end in range(1, len(messages) + 1, 2):
        found.append(run(messages[:end], {**TIGHT, "budget": {"max_tokens": max_tokens}}, cuts=cuts))
        cuts = found[-1].cuts
    return found


def test_between_cuts_every_request_begins_with_the_last_one() -> None:
    requests = prefixes(GROWING)
    quiet = [(before, after) for before, after in pairwise(requests) if before.cuts == after.cuts]

    assert len(quiet) > len(requests) / 2
    for before, after in quiet:
        assert plain(after)[: len(plain(before))] == plain(before)


def test_the_notice_changes_only_at_cuts() -> None:
    requests = prefixes(GROWING)

    for before, after in pairwise(requests):
        if before.cuts == after.cuts:
            assert notices_of(before) == notices_of(after)


def test_a_runner_that_adopts_the_pruned_array_stays_within_budget() -> None:
    history: list[dict[str, Any]] = [GROWING[0]]
    for start in range(1, len(GROWING), 2):
        result = run([*history, *GROWING[start : start + 2]], TIGHT)
        history = plain(result)
        assert result.tokens.after <= 2_000
        assert len(notices_of(result)) <= 1

    assert pruned_steps(notices_of(result)[0])[0] > 80


def test_cuts_of_another_array_are_not_honoured() -> None:
    cuts = run(GROWING, TIGHT).cuts

    result = run([user("something else"), *GROWING[1:9]], "steady", cuts=cuts)

    assert (result.status, result.cuts) == ("unchanged", [])


def test_a_cut_that_names_only_its_place_is_made_there() -> None:
    result = run(GROWING[:9], {**TIGHT, "budget": {"max_tokens": 50_000, "low_water": 0.01}}, cuts=[Cut(9)])

    assert [cut.at for cut in result.cuts] == [9]
    assert result.status == "pruned"


def test_a_policy_change_leaves_earlier_cuts_alone() -> None:
    earlier = run(GROWING[:31], TIGHT)
    wide = {**TIGHT, "budget": {"max_tokens": 90_000}, "prune": {"keep_rounds": 5, "evidence_share": 0.9}}

    later = run(GROWING[:33], wide, cuts=earlier.cuts)

    assert later.cuts == earlier.cuts
    assert plain(later)[: len(plain(earlier))] == plain(earlier)


def test_a_cold_cache_allows_a_cut_that_stays() -> None:
    messages = GROWING[:7]
    policy = {**TIGHT, "budget": {"max_tokens": 2_500, "low_water": 0.2}}
    assert run(messages, policy).status == "unchanged"

    cold = run(messages, policy, cache=Cache(age_s=400, ttl_s=300))
    later = run(GROWING[:9], policy, cuts=cold.cuts)

    assert [cut.reason for cut in cold.cuts] == ["cold_cache"]
    assert plain(later)[: len(plain(cold))] == plain(cold)


def test_reported_usage_scales_the_estimate() -> None:
    policy = {**TIGHT, "count": "calibrated", "budget": {"max_tokens": 3_000}}
    estimate = run(GROWING[:5], policy)
    usage = Usage(input_tokens=estimate.tokens.before * 2, messages=5)

    result = run(GROWING[:7], policy, usage=usage)

    assert estimate.status == "unchanged"
    assert result.tokens.estimate_before is not None
    assert result.tokens.before == pytest.approx(2 * result.tokens.estimate_before, rel=0.01)
    assert (result.status, [cut.at for cut in result.cuts]) == ("pruned", [7])


def test_reported_usage_moves_no_echoed_cut() -> None:
    policy = {**TIGHT, "count": "calibrated"}
    earlier = run(GROWING[:31], policy)

    for reported in (500, 5_000):
        usage = Usage(input_tokens=reported, messages=31, pruned=True)
        later = run(GROWING[:33], policy, cuts=earlier.cuts, usage=usage)
        assert later.cuts[: len(earlier.cuts)] == earlier.cuts


def test_thinking_made_after_a_published_cut_stays() -> None:
    thought = {"type": "thinking", "thinking": "I see.", "signature": "s"}
    messages = [GROWING[0]]
    for message in GROWING[1:]:
        content = [thought, *message["content"]] if message["role"] == "assistant" else message["content"]
        messages.append({**message, "content": content})
    requests = prefixes(messages, max_tokens=6_000)
    quiet = [pair for pair in pairwise(requests) if pair[0].cuts == pair[1].cuts and pair[0].cuts]

    assert len(quiet) > len(requests) / 2
    for before, after in quiet:
        assert plain(after)[: len(plain(before))] == plain(before)
        assert plain(after)[-2]["content"][0] == thought


def test_economics_says_what_the_cut_was_weighed_at() -> None:
    at_cut = next(result for result in prefixes(GROWING) if result.cuts)
    account = at_cut.economics

    assert account
    assert account.decision == "hard_limit"
    assert account.tokens_removed == at_cut.cuts[-1].tokens_before - at_cut.cuts[-1].tokens_after
    assert account.tokens_kept_after <= at_cut.tokens.after
    assert account.break_even_calls is not None


def test_break_even_follows_the_provider_s_prices() -> None:
    assert break_even_calls(CachePrices(), 1_000, 1_000) == pytest.approx(11.5)
    assert break_even_calls(CachePrices(provider="anthropic-1h"), 1_000, 1_000) == pytest.approx(19)
    assert break_even_calls(CachePrices(provider="openai"), 1_000, 1_000) == pytest.approx(9)
    assert break_even_calls(CachePrices(read=0.5, write=0.5), 1_000, 1_000) == 0
    assert break_even_calls(CachePrices(), 1_000, 0) is None


def test_a_cut_that_does_not_pay_waits_for_the_limit() -> None:
    budget = {"max_tokens": 3_000, "high_water": 0.5, "low_water": 0.3}
    messages = GROWING[:7]

    eager = run(messages, {**TIGHT, "budget": budget})
    patient = run(messages, {**TIGHT, "budget": budget, "economics": {"horizon_calls": 1}})

    assert [cut.reason for cut in eager.cuts] == ["high_water"]
    assert patient.cuts == []
    assert patient.economics
    assert patient.economics.decision == "not_worth_it"


def lines_run(messages: list[dict[str, Any]], policy: dict[str, Any]) -> int:
    """Lines of the pipeline executed by one run: a count that no clock disturbs."""
    snapshot, loaded = Snapshot("c", raws(messages), format="anthropic"), load_policy(policy)
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if "/pipeline/" not in frame.f_code.co_filename or "/tests/" in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        prune(snapshot, loaded)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("budget", [500, 20_000])
def test_work_grows_in_step_with_the_messages(budget: int) -> None:
    text = "\n".join(f"src/m_{n}.py Handler{n}" for n in range(3))
    policy = {"preset": "steady", "budget": {"max_tokens": budget}}
    counts = {n: lines_run([user("go"), *rounds(n // 2, text=text)], policy) for n in (2_500, 3_750, 5_000)}

    assert counts[3_750] < 1.25 * 1.5 * counts[2_500]
    assert counts[5_000] < 1.25 * 2 * counts[2_500]

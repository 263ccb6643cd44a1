"""`steady` over drawn conversations: every promise, and decisions that no later message moves."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from contracts import Code, Cut, Policy, Pruned, Snapshot
from contracts.policy import Budget, Steady
from pipeline import prune
from pipeline.steady.scan import Scan
from tests.pipeline.generators import FORMATS, Drawn, any_conversations, valid_conversations
from tests.pipeline.policies import POLICIES
from tests.pipeline.promises import check_prune

STEADY = {name: policy for name, policy in POLICIES.items() if isinstance(policy.prune, Steady)}
steady_policies = st.sampled_from(sorted(STEADY)).map(lambda name: (name, STEADY[name]))

few = settings(max_examples=max(20, settings().max_examples // 8))  # each example is pruned many times

# Positions that name places from the end, and stages that count from the end, are no matter of the prefix.
FROM_THE_PREFIX = {name: policy for name, policy in STEADY.items() if policy.collapse.after_turns is None}


def decisions(result: Pruned, until: int) -> list[tuple[object, ...]]:
    """What was done to the first messages, thinking aside, and the notice."""
    last = {edit.position: edit for edit in result.edits if edit.op != "insert" and edit.position < until}
    done = [(edit.op, edit.position, bytes(edit.item) if isinstance(edit.item, Raw) else b"") for edit in last.values()]
    inserted = [
        (edit.op, edit.position, bytes(edit.item))
        for edit in result.edits
        if edit.op == "insert" and edit.position < until and isinstance(edit.item, Raw)
    ]
    return [*sorted(done), *inserted]


def cuts_until(cuts: Sequence[Cut], at: int) -> list[Cut]:
    return [cut for cut in cuts if cut.at <= at]


def is_whole(result: Pruned) -> bool:
    """Whether the array was taken as it came and nothing was undone."""
    spoilt = {Code.INPUT_REPAIRED, Code.INPUT_INVALID, Code.STAGE_UNDONE, Code.STAGE_FAILED}
    return spoilt.isdisjoint(result.reason)


def moved_decisions(drawn: Drawn, split: int, policy: Policy) -> str:
    """How the decisions on a prefix differ from those on the whole; empty when they do not."""
    policy = replace(policy, thinking="keep")
    snapshot = drawn.snapshot
    whole = prune(snapshot, policy)
    prefix = prune(replace(snapshot, messages=snapshot.messages[:split]), policy)
    if not is_whole(whole) or not is_whole(prefix):
        return ""
    early = cuts_until(whole.cuts, split)
    if prefix.cuts != early:
        return f"cuts {prefix.cuts} of the prefix, {early} of the whole"
    if len(whole.cuts) > len(early):
        return ""  # a later cut was forced, and may change everything
    return "" if decisions(prefix, split) == decisions(whole, split) else "other edits under the same cuts"


@pytest.mark.parametrize("format_name", FORMATS)
def test_steady_keeps_every_promise_on_valid_conversations(format_name: str) -> None:
    @few
    @given(valid_conversations(format_name), steady_policies)
    def holds(drawn: Drawn, named: tuple[str, Policy]) -> None:
        assert check_prune(drawn.snapshot, named[1])[1] == []

    holds()


@pytest.mark.parametrize("format_name", FORMATS)
def test_steady_keeps_every_promise_on_any_conversation(format_name: str) -> None:
    @few
    @given(any_conversations(format_name), steady_policies)
    def holds(drawn: Drawn, named: tuple[str, Policy]) -> None:
        assert check_prune(drawn.snapshot, named[1])[1] == []

    holds()


@pytest.mark.parametrize("format_name", FORMATS)
def test_decisions_on_a_prefix_are_those_on_the_whole(format_name: str) -> None:
    @few
    @given(valid_conversations(format_name), st.sampled_from(sorted(FROM_THE_PREFIX)), st.data())
    def holds(drawn: Drawn, name: str, data: st.DataObject) -> None:
        split = data.draw(st.integers(0, len(drawn.items)), label="split")

        assert moved_decisions(drawn, split, FROM_THE_PREFIX[name]) == ""

    holds()


@pytest.mark.parametrize("format_name", FORMATS)
def test_echoed_cuts_change_nothing_while_nothing_is_known_from_outside(format_name: str) -> None:
    @few
    @given(valid_conversations(format_name), st.sampled_from(sorted(FROM_THE_PREFIX)), st.data())
    def holds(drawn: Drawn, name: str, data: st.DataObject) -> None:
        policy = replace(FROM_THE_PREFIX[name], thinking="keep")
        snapshot = drawn.snapshot
        split = data.draw(st.integers(0, len(snapshot.messages)), label="split")
        earlier = prune(replace(snapshot, messages=snapshot.messages[:split]), policy)
        fresh = prune(snapshot, policy)
        if not is_whole(earlier) or not is_whole(fresh):
            return

        echoed = prune(replace(snapshot, cuts=earlier.cuts), policy)

        assert (echoed.messages, echoed.cuts) == (fresh.messages, fresh.cuts)

    holds()


@pytest.mark.parametrize("format_name", FORMATS)
def test_echoed_cuts_hold_against_another_budget(format_name: str) -> None:
    @few
    @given(valid_conversations(format_name), st.data())
    def holds(drawn: Drawn, data: st.DataObject) -> None:
        tight = replace(STEADY["steady tight"], thinking="keep")
        assert tight.budget is not None
        wide = replace(tight, budget=replace(tight.budget, max_tokens=50_000))
        snapshot = drawn.snapshot
        split = data.draw(st.integers(0, len(snapshot.messages)), label="split")
        earlier = prune(replace(snapshot, messages=snapshot.messages[:split]), tight)
        later = prune(replace(snapshot, cuts=earlier.cuts), wide)
        # In OpenCode a call that waits makes what was said before it untouchable, though it was cut before.
        if not is_whole(earlier) or not is_whole(later) or (format_name == "opencode" and drawn.live):
            return

        assert later.cuts == earlier.cuts
        assert decisions(later, split) == decisions(earlier, split)

    holds()


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_runner_that_adopts_the_pruned_array_gets_it_back_until_the_next_cut(format_name: str) -> None:
    @few
    @given(valid_conversations(format_name), steady_policies, st.data())
    def holds(drawn: Drawn, named: tuple[str, Policy], data: st.DataObject) -> None:
        snapshot, policy = drawn.snapshot, named[1]
        split = data.draw(st.integers(0, len(snapshot.messages)), label="split")
        first = prune(replace(snapshot, messages=snapshot.messages[:split]), policy)
        assert isinstance(first.messages, list)
        adopted = replace(snapshot, messages=[*first.messages, *snapshot.messages[split:]])

        for cuts in ([], first.cuts):
            second = prune(replace(adopted, cuts=cuts), policy)
            if not second.cuts and is_whole(second):
                assert [edit for edit in second.edits if edit.position < len(first.messages)] == []

    holds()


def within_budget(snapshot: Snapshot, policy: Policy) -> bool:
    result = prune(snapshot, policy)
    limit = policy.budget.max_tokens if policy.budget else 0
    return result.tokens.after <= limit or result.status in ("cannot_fit", "fallback")


@pytest.mark.parametrize("format_name", FORMATS)
def test_the_budget_holds_or_the_result_says_so(format_name: str) -> None:
    @few
    @given(valid_conversations(format_name), steady_policies)
    def holds(drawn: Drawn, named: tuple[str, Policy]) -> None:
        assert within_budget(drawn.snapshot, named[1])

    holds()


LOG = b" ".join(b"src/module_%d.py" % number for number in range(60))
LONG_RUN = Drawn(
    "anthropic",
    (
        b'{"role":"user","content":"go"}',
        *(
            item
            for number in range(20)
            for item in (
                b'{"role":"assistant","content":[{"type":"tool_use","id":"t%d","name":"read","input":{}}]}' % number,
                b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"t%d","content":"%s"}]}'
                % (number, LOG),
            )
        ),
    ),
    0,
)


def test_the_prefix_check_catches_a_scan_that_looks_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = replace(STEADY["steady tight"], budget=Budget(max_tokens=3_000))
    splits = range(len(LONG_RUN.items) + 1)
    assert [moved_decisions(LONG_RUN, split, policy) for split in splits] == [""] * len(splits)

    def looks_ahead(scan: Scan, is_last: bool) -> Code | None:
        return Code.HARD_LIMIT if scan.total > scan.marks.limit * 40 / (40 + len(scan.messages)) else None

    monkeypatch.setattr(Scan, "_reason", looks_ahead)
    assert any(moved_decisions(LONG_RUN, split, policy) for split in splits)

"""The promises of DESIGN.md over drawn conversations: every wire format, every strategy and option."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from contracts import Policy, Snapshot
from contracts.policy import known_strategies
from pipeline import prune
from pipeline.conversation import read_conversation
from pipeline.strategies import STRATEGIES as BUILT
from pipeline.tokens import counter
from tests.pipeline.generators import FORMATS, Drawn, any_conversations, policies, valid_conversations
from tests.pipeline.policies import POLICIES
from tests.pipeline.promises import Breach, broken_rules, check_prune

some_policies = st.lists(policies(), min_size=1, max_size=3, unique_by=lambda named: named[0])


def breaches(snapshot: Snapshot, chosen: list[tuple[str, Policy]]) -> list[tuple[str, Breach]]:
    return [(name, breach) for name, policy in chosen for breach in check_prune(snapshot, policy)[1]]


@pytest.mark.parametrize("format_name", FORMATS)
def test_what_we_call_valid_breaks_no_rule(format_name: str) -> None:
    @given(valid_conversations(format_name))
    def holds(drawn: Drawn) -> None:
        conversation = read_conversation(drawn.snapshot.messages, format_name, counter("chars/4"))

        assert broken_rules(conversation) == {}

    holds()


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_promise_holds_for_valid_conversations(format_name: str) -> None:
    @given(valid_conversations(format_name), some_policies)
    def holds(drawn: Drawn, chosen: list[tuple[str, Policy]]) -> None:
        assert breaches(drawn.snapshot, chosen) == []

    holds()


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_promise_holds_for_any_conversation(format_name: str) -> None:
    @given(any_conversations(format_name), some_policies)
    def holds(drawn: Drawn, chosen: list[tuple[str, Policy]]) -> None:
        assert breaches(drawn.snapshot, chosen) == []

    holds()


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_step_that_waits_for_results_leaves_as_it_came(format_name: str) -> None:
    @given(valid_conversations(format_name).filter(lambda drawn: drawn.live > 0), policies())
    def holds(drawn: Drawn, named: tuple[str, Policy]) -> None:
        published = prune(drawn.snapshot, named[1]).messages

        assert isinstance(published, list)
        assert tuple(bytes(item) for item in published[-drawn.live :]) == drawn.items[-drawn.live :]

    holds()


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_guessed_format_is_as_safe_as_a_named_one(format_name: str) -> None:
    @given(valid_conversations(format_name).filter(lambda drawn: drawn.items != ()), policies())
    def holds(drawn: Drawn, named: tuple[str, Policy]) -> None:
        assert breaches(replace(drawn.snapshot, format="auto"), [named]) == []

    holds()


@pytest.mark.parametrize("strategy", sorted(known_strategies()))
def test_every_strategy_that_a_policy_can_name_is_held_to_the_promises(strategy: str) -> None:
    assert known_strategies()[strategy] in [kind for kind, _ in BUILT]
    assert any(isinstance(policy.prune, known_strategies()[strategy]) for policy in POLICIES.values())

"""Steady: the rounds that the plan drops, behind its one notice."""

from contracts import Code, Policy
from contracts.policy import Steady
from pipeline.conversation import Conversation
from pipeline.decisions import Plan
from pipeline.steady import make_plan
from pipeline.strategies.removal import Removal


def steady(conversation: Conversation, policy: Policy, config: Steady) -> Removal:
    """Remove the units that the plan names; a conversation without a plan gets one here."""
    plan = conversation.plan or make_plan(conversation, policy, config)
    units = _units(conversation, plan.dropped)
    return Removal(units, Code.OLD_ROUND_DROPPED, lambda earlier, gone: plan.notice, is_final=True)


def freed(conversation: Conversation, plan: Plan) -> Removal:
    """What stands before a provider's own compaction item, as far as the plan dropped it."""
    return Removal(_units(conversation, plan.freed), Code.BEFORE_COMPACTION, is_final=True)


def _units(conversation: Conversation, positions: frozenset[int]) -> list[int]:
    messages = conversation.messages
    return [
        number
        for number, unit in enumerate(conversation.units if positions else ())
        if any(not m.is_added and m.position in positions for m in messages[unit.start : unit.end])
    ]

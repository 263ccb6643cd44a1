"""Validate: what the edits before made stale goes, and every rule the array still breaks is named."""

from typing import Final

from contracts import Code, Policy
from contracts.policy import Budget, Steady
from pipeline.conversation import Conversation
from pipeline.edits import StageResult
from pipeline.thinking import bound_after, first_changed, strip_bound

STAGE: Final = "validate"


def validate(conversation: Conversation, policy: Policy) -> StageResult:
    """Strip thinking that an edit invalidated, or say that the policy refuses such edits; say what does not fit."""
    result = _check_thinking(conversation, policy)
    notes = (*result.notes, Code.OVER_BUDGET) if _is_over(result.conversation, policy) else result.notes
    return StageResult(result.conversation, result.edits, notes, result.counts)


def _is_over(conversation: Conversation, policy: Policy) -> bool:
    """Whether more must stay than `steady` may let through."""
    if not isinstance(policy.prune, Steady) or conversation.plan is None:
        return False
    budget = policy.budget or Budget()
    return conversation.tokens * max(1.0, conversation.plan.scale) > budget.max_tokens


def _check_thinking(conversation: Conversation, policy: Policy) -> StageResult:
    if policy.thinking == "keep":
        return StageResult(conversation)
    if policy.thinking == "strip":
        plan = conversation.plan
        return strip_bound(conversation, STAGE, plan.thinking_until if plan else None)
    start = first_changed(conversation)
    # The turn that is being continued must keep its thinking, so an edit before it breaks that too.
    is_broken = start is not None and bool(bound_after(conversation, start, len(conversation.messages)))
    return StageResult(conversation, notes=(Code.THINKING_BOUND,) if is_broken else ())

"""Validate: what the edits before made stale goes, and every rule the array still breaks is named."""

from typing import Final

from contracts import Code, Policy
from pipeline.conversation import Conversation
from pipeline.edits import StageResult
from pipeline.thinking import bound_after, first_changed, strip_bound

STAGE: Final = "validate"


def validate(conversation: Conversation, policy: Policy) -> StageResult:
    """Strip thinking that an edit invalidated, or say that the policy refuses such edits."""
    if policy.thinking == "keep":
        return StageResult(conversation)
    if policy.thinking == "strip":
        return strip_bound(conversation, STAGE)
    start = first_changed(conversation)
    is_broken = start is not None and bool(bound_after(conversation, start))
    return StageResult(conversation, notes=(Code.THINKING_BOUND,) if is_broken else ())

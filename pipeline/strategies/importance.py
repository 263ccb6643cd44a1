"""Importance: drop the turns that matter least; recency, tool calls and long answers matter."""

from typing import Final

from contracts import Code, Policy
from contracts.policy import Importance
from pipeline.conversation import Conversation
from pipeline.keep import first_prompt, kept_units, turn_blocks
from pipeline.notices import notice_text
from pipeline.strategies.removal import Removal

RECENCY: Final = 0.5
TOOL_CALLS: Final = 0.3
ANSWER_LENGTH: Final = 0.2
LONG_ANSWER_CHARS: Final = 4_000


def importance(conversation: Conversation, policy: Policy, config: Importance) -> Removal:
    """Remove the lowest-scoring turns, the older first among equals, until ``max_turns`` remain."""
    blocks = turn_blocks(conversation, policy.turn)
    kept = kept_units(conversation, policy.keep, policy.turn)
    excess = sum(block.turns for block in blocks) - max(config.max_turns, 1)
    scores = {block.units[0]: max(score(conversation, index) for index in block.indices) for block in blocks}
    # Where a user must speak first, the first prompt would be put back: it goes last.
    front = first_prompt(conversation.messages) if conversation.dialect.needs_user_first else None
    gone: list[int] = []
    for block in sorted(blocks, key=lambda block: (front in block.indices, scores[block.units[0]], block.units[0])):
        if excess <= 0:
            break
        if block.turns and kept.isdisjoint(block.units):
            gone.extend(block.units)
            excess -= block.turns
    return Removal(gone, Code.LOW_IMPORTANCE)


def score(conversation: Conversation, index: int) -> float:
    """How much one message matters, from 0 to 1."""
    message = conversation.messages[index]
    if notice_text(message):
        return 0.0
    last = len(conversation.messages) - 1
    has_tools = any(part.kind in ("call", "result") for part in message.parts)
    spoken = sum(len(part.text) for part in message.of_kind("text")) if message.role == "assistant" else 0
    length = min(spoken / LONG_ANSWER_CHARS, 1.0)
    return RECENCY * (index / last if last else 1.0) + TOOL_CALLS * has_tools + ANSWER_LENGTH * length

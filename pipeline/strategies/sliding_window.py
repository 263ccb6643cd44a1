"""Sliding window: keep the last turns; what a pair at the boundary needs stays, or goes, whole."""

from contracts import Code, Policy
from contracts.policy import SlidingWindow
from pipeline.conversation import Conversation
from pipeline.keep import cut_at, kept_units, window_start
from pipeline.strategies.removal import Removal


def sliding_window(conversation: Conversation, policy: Policy, config: SlidingWindow) -> Removal:
    """Remove every unit older than the window that nothing keeps."""
    return Removal(units_before_window(conversation, policy, config.max_turns, config.boundary), Code.OUTSIDE_WINDOW)


def units_before_window(conversation: Conversation, policy: Policy, max_turns: int, boundary: str) -> list[int]:
    """The numbers of the units that end before the window and may go."""
    cut = cut_at(conversation, window_start(conversation, max_turns, policy.turn), boundary)
    kept = kept_units(conversation, policy.keep, policy.turn)
    return [n for n, unit in enumerate(conversation.units) if unit.end <= cut and n not in kept]

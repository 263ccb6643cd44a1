"""Summarize: what is older than the window gives way to one placeholder that says how much it was."""

from contracts import Code, Policy
from contracts.policy import Summarize
from pipeline.conversation import Conversation
from pipeline.notices import summarized_text, summarized_turns
from pipeline.strategies.removal import Gone, Removal
from pipeline.strategies.sliding_window import units_before_window


def summarize(conversation: Conversation, policy: Policy, config: Summarize) -> Removal:
    """Remove every unit older than the window and count its turns into the placeholder."""
    old = units_before_window(conversation, policy, config.max_turns, "extend")
    return Removal(old, Code.OUTSIDE_WINDOW, notice=_text, notice_role="user")


def _text(earlier: list[str], gone: Gone) -> str:
    return summarized_text(gone.turns + sum(map(summarized_turns, earlier)))

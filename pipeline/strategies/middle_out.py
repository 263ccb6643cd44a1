"""Middle out: between the system prompt and the last turns, drop what carries no tool reference; in doubt, keep."""

from contracts import Code, Policy
from contracts.policy import MiddleOut
from pipeline.conversation import Conversation
from pipeline.strategies.removal import Removal
from pipeline.strategies.sliding_window import units_before_window
from pipeline.units import Unit


def middle_out(conversation: Conversation, policy: Policy, config: MiddleOut) -> Removal:
    """Remove plain middle turns, and tool rounds too when the policy does not keep them."""
    middle = units_before_window(conversation, policy, config.last_turns, "extend")
    gone = [n for n in middle if _may_go(conversation, conversation.units[n], config.keep_middle_pairs)]
    return Removal(gone, Code.MIDDLE_TURN)


def _may_go(conversation: Conversation, unit: Unit, keep_pairs: bool) -> bool:
    parts = [part for message in conversation.messages[unit.start : unit.end] for part in message.parts]
    if any(part.kind in ("media", "opaque") for part in parts):
        return False
    return not (keep_pairs and any(part.kind in ("call", "result") for part in parts))

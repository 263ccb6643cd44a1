"""Token budget: over the limit, the oldest units go, whole, behind one notice that names their tools."""

from contracts import Code, Policy
from contracts.policy import TokenBudget
from pipeline.conversation import Conversation
from pipeline.keep import kept_units
from pipeline.notices import pruned_text, pruned_tools
from pipeline.strategies.removal import Gone, Removal


def token_budget(conversation: Conversation, policy: Policy, config: TokenBudget) -> Removal:
    """Remove the oldest units until what stays, with its notice, fits; say so when it cannot."""
    excess = conversation.tokens - config.max_tokens
    if excess <= 0:
        return Removal([], Code.TOKEN_BUDGET)
    kept = kept_units(conversation, policy.keep, policy.turn)
    removable = [n for n in range(len(conversation.units)) if n not in kept]
    tools = [call.part.name for n in removable for call in conversation.units[n].calls]
    excess += conversation.count(pruned_text(tools))  # the longest notice this can need
    gone: list[int] = []
    for number in removable:
        if excess <= 0:
            break
        unit = conversation.units[number]
        excess -= sum(message.tokens for message in conversation.messages[unit.start : unit.end])
        gone.append(number)
    return Removal(gone, Code.TOKEN_BUDGET, _text, notes=(Code.OVER_BUDGET,) if excess > 0 else ())


def _text(earlier: list[str], gone: Gone) -> str:
    return pruned_text([*(name for text in earlier for name in pruned_tools(text)), *gone.tools])

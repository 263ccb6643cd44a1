"""Strategies of the prune stage: the one table of them, by the config that a policy gives."""

from collections.abc import Callable
from typing import Any, Final

from contracts import Policy
from contracts.policy import Importance, MiddleOut, SlidingWindow, Steady, Summarize, TokenBudget
from pipeline.conversation import Conversation
from pipeline.strategies.importance import importance
from pipeline.strategies.middle_out import middle_out
from pipeline.strategies.removal import Gone, Removal
from pipeline.strategies.sliding_window import sliding_window
from pipeline.strategies.steady import steady
from pipeline.strategies.summarize import summarize
from pipeline.strategies.token_budget import token_budget

__all__ = ["STRATEGIES", "Gone", "Removal", "Strategy"]

Strategy = Callable[[Conversation, Policy, Any], Removal]

STRATEGIES: Final[tuple[tuple[type, Strategy], ...]] = (
    (SlidingWindow, sliding_window),
    (Summarize, summarize),
    (Importance, importance),
    (TokenBudget, token_budget),
    (MiddleOut, middle_out),
    (Steady, steady),
)

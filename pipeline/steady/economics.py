"""Economics: what a cut costs in a provider's prompt cache, and after how many calls it has paid."""

from contracts import Economics
from contracts.policy import CachePrices


def break_even_calls(prices: CachePrices, kept: float, removed: float) -> float | None:
    """Calls until rewriting ``kept`` tokens is paid by no longer reading ``removed``; None when it never is."""
    if removed <= 0 or not prices.read_price:
        return None
    return max(0.0, prices.write_price - prices.read_price) * kept / (prices.read_price * removed)


def pays(prices: CachePrices, kept: float, removed: float) -> bool:
    """Whether a cut pays within the horizon."""
    calls = break_even_calls(prices, kept, removed)
    return calls is not None and calls <= prices.horizon_calls


def weigh(prices: CachePrices, decision: str, kept: int, removed: int, cached: int) -> Economics:
    """The account of a cut that was made: ``cached`` tokens of the last request must be written again."""
    calls = break_even_calls(prices, min(kept, cached), removed)
    rewriting = max(0.0, prices.write_price - prices.read_price) * min(kept, cached)
    saving = prices.read_price * removed * prices.horizon_calls - rewriting
    return Economics(decision, kept, removed, None if calls is None else round(calls, 2), cached, round(saving, 1))

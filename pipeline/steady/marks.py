"""Marks: the sizes at which a cut must be made, may be made, and ends."""

from msgspec import Struct

from contracts.policy import Budget


class Marks(Struct, frozen=True):
    """Sizes in estimated tokens: never above the limit, from high on a cut may pay, down to low."""

    limit: float
    high: float
    low: float
    cold: float  # from here on a cut is worth it when the cache is lost anyway

    @classmethod
    def of(cls, budget: Budget, scale: float) -> "Marks":
        """The marks of a budget when so many real tokens stand for one estimated."""
        limit = budget.max_tokens / scale
        low = limit * min(budget.low_water, budget.high_water)
        return cls(limit, limit * budget.high_water, low, (low + limit * budget.high_water) / 2)

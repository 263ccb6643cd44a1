"""Decisions: what `steady` knows from outside the array, and what it decided, as data between plan and stages."""

from typing import Final

from msgspec import Raw, Struct

from contracts import Cache, Code, Cut, Economics, Usage
from contracts.result import Action


class Hints(Struct, frozen=True):
    """What a snapshot tells beside its messages."""

    cuts: tuple[Cut, ...] = ()
    cache: Cache | None = None
    usage: Usage | None = None


NO_HINTS: Final = Hints()


class Rewrite(Struct, frozen=True):
    """Another item for a message, and why."""

    item: Raw
    action: Action
    reason: Code
    tool: str = ""


class Plan(Struct, frozen=True):
    """Which messages are rewritten and which go, by position, and the text that stands for those that went."""

    rewrites: dict[int, Rewrite] = {}
    freed: frozenset[int] = frozenset()  # before a provider's compaction item
    dropped: frozenset[int] = frozenset()
    notice: str = ""
    cuts: tuple[Cut, ...] = ()
    economics: Economics | None = None
    scale: float = 1.0  # reported tokens per estimated token
    thinking_until: int | None = None  # thinking from this position on was made after the last cut was published

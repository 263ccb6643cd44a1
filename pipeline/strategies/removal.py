"""Removal: what a strategy decides, as data: which units go, why, and what stands in their place."""

from collections.abc import Callable

from msgspec import Struct

from contracts import Code
from pipeline.view import Role


class Gone(Struct, frozen=True):
    """What a removal took: how many turns, and the tools they used in the order of first use."""

    turns: int
    tools: list[str]


class Removal(Struct, frozen=True):
    """The units to remove by number; ``notice`` makes the text that stands where the first of them was."""

    units: list[int]
    reason: Code
    notice: Callable[[list[str], Gone], str] | None = None  # given the notices of earlier runs, which it replaces
    notice_role: Role | None = None  # who says it, where the provider lets us choose; None: as the format prefers
    notes: tuple[Code, ...] = ()
    is_final: bool = False  # earlier notices and the front of the array have been thought of

"""What a wire format must be able to do: read an item, write what we add, and name every broken rule."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from pipeline.splice import Change
from pipeline.units import Call, Pairs
from pipeline.view import Message, Part, Role, View


class Violation(Struct, frozen=True):
    """A provider rule that an array breaks, by our id for it, and the message that breaks it."""

    rule: str
    index: int


class Dialect(Struct, frozen=True):
    """One wire format, as plain functions."""

    name: str
    # How sure the format is of a parsed item: 0 not ours, 1 could be, 2 only ours.
    recognise: Callable[[Any], int]
    read: Callable[[Any], View]
    violations: Callable[[Sequence[Message], Pairs], list[Violation]]
    # A message that says a text; the role is the nearest that the provider accepts there.
    say: Callable[[Role, str], Any]
    # Give a result another content, its link to the call untouched.
    put_result: Callable[[Part, str], list[Change]]
    # For each message, the end of the run behind it in which its calls must be answered.
    answer_ends: Callable[[Sequence[Message]], list[int]]
    # For each message, where the answer to a call in it goes when nobody gave one.
    answer_places: Callable[[Sequence[Message]], list[int]]
    # Results for calls nobody answered: changes to the first answering message if there is one, else new items.
    answer: Callable[[Sequence[Call], Message | None], tuple[list[Change], list[Any]]]
    # Content that the provider rejects, message by message: what to change; None drops the message.
    tidy: Callable[[Sequence[Message], Pairs], dict[int, list[Change] | None]]
    # A part that says a text, where call and result are one part of a message and cannot be replaced by a message.
    text_part: Callable[[str], Any] | None = None
    # Where a result stays and only a mark says that it is left out of the context: set that mark, at a time in ms.
    mark_compacted: Callable[[Part, int], list[Change]] | None = None
    # The latest time inside a parsed item, in milliseconds.
    latest_time: Callable[[Any], int] | None = None
    needs_user_first: bool = False
    notice_role: Role = "user"

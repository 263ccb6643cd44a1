"""Broken pairs: what every format with separate calls and results has in common."""

from collections.abc import Sequence

from msgspec import Struct

from pipeline.dialects.dialect import Violation
from pipeline.units import Call, frontier, pair_calls
from pipeline.view import Message, Part


class Breaks(Struct, frozen=True):
    """Calls without a result where the provider looks for it, and results without a call before them."""

    unanswered: list[Call]
    misplaced: list[Call]  # answered, but not where the provider looks
    unmatched: list[tuple[int, Part]]
    answered_ids: frozenset[str]


def find_breaks(messages: Sequence[Message], ends: Sequence[int]) -> Breaks:
    """What is wrong with the pairs of an array; the live step at its end is not."""
    pairs = pair_calls(messages)
    live = frontier(messages)
    unanswered = [call for call in pairs.calls if call.result is None and call.index < live]
    answered = [call for call in pairs.calls if call.result is not None]
    misplaced = [call for call in answered if not call.index <= call.result_index < ends[call.index]]
    ids = frozenset(call.part.id for call in answered if call.part.id)
    return Breaks(unanswered, misplaced, list(pairs.unmatched), ids)


def pair_violations(format_name: str, messages: Sequence[Message], ends: Sequence[int]) -> list[Violation]:
    """One violation for each broken call or result."""
    breaks = find_breaks(messages, ends)
    found = [Violation(f"{format_name}.unanswered_call", call.index) for call in breaks.unanswered]
    for call in breaks.misplaced:
        found.append(Violation(f"{format_name}.unanswered_call", call.index))
        found.append(Violation(f"{format_name}.unmatched_result", call.result_index))
    for index, part in breaks.unmatched:
        rule = "duplicate_result" if part.id in breaks.answered_ids else "unmatched_result"
        found.append(Violation(f"{format_name}.{rule}", index))
    return found

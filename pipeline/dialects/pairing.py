"""Broken pairs: what every format with separate calls and results has in common."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from pipeline.dialects.dialect import Violation
from pipeline.units import Call, Pairs, frontier
from pipeline.view import RESULT, Message, Part


class Breaks(Struct, frozen=True):
    """Calls without a result where the provider looks for it, and results without a call before them."""

    unanswered: list[Call]
    misplaced: list[Call]  # answered, but not where the provider looks
    unmatched: list[tuple[int, Part]]
    answered_ids: frozenset[str]


def find_breaks(messages: Sequence[Message], pairs: Pairs, ends: Sequence[int]) -> Breaks:
    """What is wrong with the pairs of an array; the live step at its end is not."""
    live = frontier(messages)
    unanswered: list[Call] = []
    misplaced: list[Call] = []
    for call in pairs.calls:
        if call.result is None:
            # Where the format expects an answer before what follows, nothing is awaited any more.
            is_live = call.index >= live and ends[call.index] == len(messages)
            if not is_live and call.part.state != "server":
                unanswered.append(call)
        elif not call.index <= call.result_index < ends[call.index]:
            misplaced.append(call)
    answered = (call.part.id for call in pairs.calls if call.result is not None and call.part.id)
    return Breaks(unanswered, misplaced, list(pairs.unmatched), frozenset(answered if pairs.unmatched else ()))


def pair_violations(
    format_name: str, messages: Sequence[Message], pairs: Pairs, ends: Sequence[int]
) -> list[Violation]:
    """One violation for each broken call or result."""
    breaks = find_breaks(messages, pairs, ends)
    found = [Violation(f"{format_name}.unanswered_call", call.index) for call in breaks.unanswered]
    for call in breaks.misplaced:
        found.append(Violation(f"{format_name}.unanswered_call", call.index))
        found.append(Violation(f"{format_name}.unmatched_result", call.result_index))
    for index, part in breaks.unmatched:
        rule = "duplicate_result" if part.id in breaks.answered_ids else "unmatched_result"
        found.append(Violation(f"{format_name}.{rule}", index))
    return found


def ends_between_speakers(messages: Sequence[Message]) -> list[int]:
    """Neighbours of one role count as one message: a call is answered in the user messages behind it, before text."""
    count = len(messages)
    ends = [count] * count
    run_end = count
    for index in range(count - 1, -1, -1):
        following = messages[index + 1] if index + 1 < count else None
        if following is None or following.view.role != "assistant":
            ends[index] = run_end
        else:
            ends[index] = ends[index + 1]
        if messages[index].view.role != "user":
            run_end = index
        elif messages[index].kinds & ~RESULT:
            run_end = index + 1
    return ends


def ends_anywhere(messages: Sequence[Message]) -> list[int]:
    """A call may be answered by anything behind it."""
    return [len(messages)] * len(messages)


def places_behind(messages: Sequence[Message], belongs: Callable[[Message], bool]) -> list[int]:
    """For each message, the end of the run around it of messages that ``belongs`` accepts."""
    places = list(range(1, len(messages) + 1))
    for index in range(len(messages) - 2, -1, -1):
        if belongs(messages[index + 1]):
            places[index] = places[index + 1]
    return places


def places_behind_speaker(messages: Sequence[Message]) -> list[int]:
    """Behind the run of assistant messages that a call stands in."""
    return places_behind(messages, lambda message: message.view.role == "assistant")

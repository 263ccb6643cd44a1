"""Keep: which messages no strategy may remove, what a turn is, and where a cut may fall."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from msgspec import Struct

from contracts.policy import Keep, Turn
from pipeline.conversation import Conversation
from pipeline.notices import notice_text
from pipeline.units import frontier, is_prompt
from pipeline.view import Message

SPEAKERS: Final = frozenset({"user", "assistant", "tool"})


class Block(Struct, frozen=True):
    """Neighbouring units that count together as turns."""

    units: list[int]
    indices: range
    turns: int


def is_pinned(message: Message, keep: Keep) -> bool:
    """A message that stays for its own sake: system, unknown to us, or named by position."""
    role = message.view.role
    if role == "other" or (role == "system" and keep.system and not notice_text(message)):
        return True
    return bool(keep.positions) and message.position in keep.positions and not message.is_added


def kept_units(conversation: Conversation, keep: Keep, turn: Turn) -> set[int]:
    """The numbers of the units that must stay: pinned, protected tools, first user message, last turns, live step."""
    messages, units = conversation.messages, conversation.units
    special = (i for i, m in enumerate(messages) if m.view.marks or m.view.role not in SPEAKERS or keep.positions)
    kept = {conversation.unit_at(i) for i in special if _is_kept(messages[i], keep)}
    if keep.tools:
        kept |= {n for n, unit in enumerate(units) if any(call.part.name in keep.tools for call in unit.calls)}
    if keep.first_user and (first := first_prompt(messages)) is not None:
        kept.add(conversation.unit_at(first))
    floor = min(window_start(conversation, keep.last, turn), frontier(messages), conversation.live, len(messages) - 1)
    return kept | set(range(conversation.unit_at(floor), len(units)))


def _is_kept(message: Message, keep: Keep) -> bool:
    return "compaction" in message.view.marks or is_pinned(message, keep)


def first_prompt(messages: tuple[Message, ...]) -> int | None:
    """The first user message that asks something and is not a notice of ours."""
    return next((i for i, message in enumerate(messages) if is_turn(message) and is_prompt(message)), None)


def is_turn(message: Message) -> bool:
    """System messages and our own notices are not turns."""
    role = message.view.role
    return role == "assistant" or role == "tool" or (role != "system" and not notice_text(message))


def turn_starts(conversation: Conversation, turn: Turn) -> list[int]:
    """Where each turn begins."""
    messages = conversation.messages
    if turn == "round":
        return [unit.start for unit in conversation.units if is_turn(messages[unit.start])]
    starts = (i for i, message in enumerate(messages) if is_turn(message))
    return [i for i in starts if turn == "message" or is_prompt(messages[i])]


def turn_blocks(conversation: Conversation, turn: Turn) -> list[Block]:
    """All units, grouped so that each group can go without leaving part of a turn behind."""
    starts = set(turn_starts(conversation, turn))
    blocks: list[Block] = []
    for number, unit in enumerate(conversation.units):
        turns = sum(index in starts for index in range(unit.start, unit.end))
        if turn == "user" and not turns and blocks:
            last = blocks[-1]
            last.units.append(number)
            blocks[-1] = Block(last.units, range(last.indices.start, unit.end), last.turns)
        else:
            blocks.append(Block([number], range(unit.start, unit.end), turns))
    return blocks


def window_start(conversation: Conversation, turns: int, turn: Turn) -> int:
    """The index at which the last ``turns`` turns begin; the last message is always inside."""
    last = len(conversation.messages) - 1
    starts = islice(_starts_newest_first(conversation, turn), turns + 1)
    latest = list(starts)
    if len(latest) <= turns:
        return 0
    return latest[turns - 1] if turns else last


def _starts_newest_first(conversation: Conversation, turn: Turn) -> Iterator[int]:
    messages = conversation.messages
    if turn == "round":
        yield from reversed(turn_starts(conversation, turn))
        return
    for index in range(len(messages) - 1, -1, -1):
        if is_turn(messages[index]) and (turn == "message" or is_prompt(messages[index])):
            yield index


def cut_at(conversation: Conversation, index: int, boundary: str) -> int:
    """A legal cut near ``index``: the start of the unit it falls into, or with `drop` its end, never past the last."""
    unit = conversation.units[conversation.unit_at(index)]
    if unit.start == index or boundary == "extend":
        return unit.start
    return min(unit.end, conversation.units[-1].start)

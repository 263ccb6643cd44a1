"""Conversation: the immutable array a stage reads, every message viewed and counted once."""

import collections
import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import Raw

from contracts import Code, Refused
from pipeline.decisions import NO_HINTS, Hints, Plan
from pipeline.dialects import Dialect, find_dialect
from pipeline.splice import Change
from pipeline.tokens import Counter, count_part, count_view
from pipeline.units import Pairs, Unit, build_units, frontier, is_whole_step, pair_calls
from pipeline.view import KIND_BITS, Message, Part, Path, with_texts

MAX_DEPTH: Final = 64

_EMPTY_HASH = hashlib.sha256()
_plain = msgspec.json.Decoder(float_hook=str)  # numbers inside messages are opaque, also those no float can hold


@dataclass(frozen=True)
class Conversation:
    """Messages of one wire format with the counter of the run; derived structure is built when first asked for."""

    dialect: Dialect
    count: Counter
    messages: tuple[Message, ...]
    originals: Sequence[Raw]  # the array as it came: edits speak of its positions
    fixed_tokens: int = 0  # of the system prompt and the tools, which no stage touches
    taken_at: int = 0  # of the snapshot, in milliseconds; 0 when it does not say
    hints: Hints = NO_HINTS  # what the snapshot tells from outside the array
    plan: Plan | None = None  # what `steady` decided, from the first stage on
    digests: dict[int, str] = field(default_factory=dict, compare=False, repr=False)  # of originals, for all states

    @cached_property
    def pairs(self) -> Pairs:
        """Every call with its result."""
        return pair_calls(self.messages)

    @cached_property
    def broken_rules(self) -> collections.Counter[str]:
        """How often each of the provider's rules is broken."""
        return collections.Counter(found.rule for found in self.dialect.violations(self.messages, self.pairs))

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """What is never split, in order, covering every message."""
        return build_units(self.messages, self.pairs)

    def unit_at(self, index: int) -> int:
        """The number of the unit that a message stands in."""
        return bisect_right(self.units, index, key=attrgetter("end"))

    @cached_property
    def live(self) -> int:
        """Where the step begins that still waits for results: nothing from here on is edited."""
        start, count = frontier(self.messages), len(self.messages)
        waiting = [call.index for call in self.pairs.calls if call.result is None and call.index >= start]
        ends = self.dialect.answer_ends(self.messages) if waiting else []
        live = min((index for index in waiting if ends[index] == count), default=count)
        while 0 < live < count and self._is_speech(live - 1):
            live -= 1  # what the model said in the same step
        return live

    def _is_speech(self, index: int) -> bool:
        """Something of the model's that is not a step of its own."""
        message = self.messages[index]
        return message.role == "assistant" and not is_whole_step(message)

    @cached_property
    def tokens(self) -> int:
        """The whole size by the run's counter, system prompt and tools included."""
        return self.fixed_tokens + sum(message.tokens for message in self.messages)

    @cached_property
    def moment(self) -> int:
        """The only time there is: the snapshot's, else the latest inside the messages, else 1."""
        latest = self.dialect.latest_time
        if self.taken_at or latest is None:
            return self.taken_at or 1
        return max((latest(parse(raw)) for raw in self.originals), default=0) or 1

    @cached_property
    def _tool_names(self) -> dict[tuple[int, Path], str]:
        calls = self.pairs.calls
        return {(call.result_index, call.result.path): call.part.name for call in calls if call.result is not None}

    def tool_name(self, index: int, result: Part) -> str:
        """The tool whose result stands in a message."""
        return result.name or self._tool_names.get((index, result.path), "")

    def read(self, raw: Raw, position: int, *, is_added: bool = False) -> Message:
        """A raw item as a message of this conversation."""
        return self.view(raw, parse(raw), position, is_added)

    def digest(self, position: int) -> str:
        """The sha256 of an original item, computed once however often it is edited."""
        found = self.digests.get(position)
        if found is None:
            hashed = _EMPTY_HASH.copy()  # half the price of a new one
            hashed.update(self.originals[position])
            found = self.digests[position] = hashed.hexdigest()
        return found

    def view(self, raw: Raw, value: Any, position: int, is_added: bool = False) -> Message:
        """A raw item whose value is known, as a message of this conversation."""
        view, count = self.dialect.read(value), self.count
        kinds = tokens = 0
        for part in view.parts:
            kinds |= KIND_BITS[part.kind]
            tokens += count_part(part, count)
        return Message(raw, view, tokens, position, is_added, kinds)

    def retell(self, message: Message, item: Raw, changes: Sequence[Change]) -> Message | None:
        """A changed message without reading it again; None where more changed than texts that it shows."""
        texts = {path: text for path, text in changes if type(text) is str and text}
        view = with_texts(message.view, texts) if len(texts) == len(changes) else None
        if view is None:
            return None
        return Message(item, view, count_view(view, self.count), message.position, message.is_added, message.kinds)

    def with_plan(self, plan: Plan) -> "Conversation":
        """The same conversation and what was decided of it; what is known of its messages already stays known."""
        planned = copy(self)
        object.__setattr__(planned, "plan", plan)
        return planned

    def with_messages(self, messages: Iterable[Message]) -> "Conversation":
        """The same conversation holding other messages."""
        made = object.__new__(Conversation)  # a third of what `replace` takes; what was derived is left behind
        made.__dict__.update((name, self.__dict__[name]) for name in _FIELDS)
        made.__dict__["messages"] = tuple(messages)
        return made


_FIELDS: Final = tuple(Conversation.__dataclass_fields__)


def read_conversation(items: Sequence[Raw], format_name: str, count: Counter) -> Conversation:
    """The conversation in ``items``; ``Refused`` when its format is unknown or an item is nested too deep."""
    values = [parse(raw) for raw in items]
    empty = Conversation(find_dialect(format_name, values), count, (), items)
    return empty.with_messages(map(empty.view, items, values, range(len(items))))


def parse(raw: Raw) -> Any:
    """One raw item as plain values; ``Refused`` beyond the depth limit."""
    try:
        value = _plain.decode(raw)
    except RecursionError:
        raise Refused(Code.TOO_DEEP) from None
    except msgspec.ValidationError:
        value = json.loads(bytes(raw), parse_int=str)  # an integer too long for int(); kept as its digits
    for child in value.values() if type(value) is dict else (value,):
        kind = type(child)
        if (kind is dict or kind is list) and not _is_within(child, MAX_DEPTH - (child is not value)):
            raise Refused(Code.TOO_DEEP)
    return value


def _is_within(node: Any, levels: int) -> bool:
    if type(node) is not dict and type(node) is not list:
        return True
    for child in node.values() if type(node) is dict else node:
        kind = type(child)
        if (kind is dict or kind is list) and (not levels or not _is_within(child, levels - 1)):
            return False
    return True

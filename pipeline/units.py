"""Units: what is never split. Calls and results are paired by position and id, never by id alone."""

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from pipeline.notices import is_collapsed
from pipeline.view import CALL, MEDIA, PAIRED, REASONING, RESULT, TEXT, Message, Part


class Call(Struct, frozen=True, gc=False):
    """A tool call and where it was answered; ``result`` is None while nobody has."""

    index: int
    part: Part
    result_index: int = -1
    result: Part | None = None


class Unit(Struct, frozen=True, gc=False):
    """A run of messages that stays or goes whole: a single message, or a round with its reasoning."""

    start: int
    end: int
    calls: tuple[Call, ...] = ()

    @property
    def is_round(self) -> bool:
        """Whether it holds tool calls."""
        return bool(self.calls)

    @property
    def is_open(self) -> bool:
        """Whether a call in it still waits for its result."""
        return any(call.result is None for call in self.calls)

    @property
    def size(self) -> int:
        """How many messages it holds."""
        return self.end - self.start


class Pairs(Struct, frozen=True):
    """Every call with its result, and the results that answer none."""

    calls: tuple[Call, ...]
    unmatched: tuple[tuple[int, Part], ...]


def pair_calls(messages: Sequence[Message]) -> Pairs:
    """Match each result to the latest open call with its id; results without an id go by order and name."""
    open_calls = _OpenCalls()
    lone = open_calls.lone
    calls: list[Call] = []
    unmatched: list[tuple[int, Part]] = []
    for index, message in enumerate(messages):
        if not message.kinds & PAIRED:
            continue
        for part in message.view.parts:
            kind = part.kind
            if kind == "call":
                if part.id and part.id not in lone:
                    lone[part.id] = (len(calls), index)  # as `add` does; nearly all calls go this way
                else:
                    open_calls.add(len(calls), index, part)
                calls.append(Call(index, part))
            elif kind == "result":
                answered: int | None
                if calls and calls[-1].index == index and calls[-1].part.path == part.path:
                    answered = open_calls.close(len(calls) - 1)  # one piece, whatever the ids say
                else:
                    answered = open_calls.take(part)
                if answered is None:
                    unmatched.append((index, part))
                else:
                    call = calls[answered]
                    calls[answered] = Call(call.index, call.part, index, part)
    return Pairs(tuple(calls), tuple(unmatched))


class _OpenCalls:
    """Calls not yet answered: the latest message first, and within it the first call first."""

    def __init__(self) -> None:
        self.lone: dict[str, tuple[int, int]] = {}  # ids that one open call has: nearly all
        self._by_key: dict[str, list[tuple[int, deque[int]]]] = {}
        self._taken: set[int] = set()

    def add(self, number: int, index: int, part: Part) -> None:
        if not part.id:
            # A result names the tool, or nothing at all: such a call is found either way.
            self._push(f"name:{part.name}", number, index)
            self._push("anonymous", number, index)
        elif part.id not in self.lone:
            self.lone[part.id] = (number, index)
        else:
            key = f"id:{part.id}"
            if not self._by_key.get(key):
                self._push(key, *self.lone[part.id])
            self._push(key, number, index)

    def _push(self, key: str, number: int, index: int) -> None:
        stack = self._by_key.setdefault(key, [])
        if not stack or stack[-1][0] != index:
            stack.append((index, deque()))
        stack[-1][1].append(number)

    def take(self, part: Part) -> int | None:
        if not part.id:
            return self._pop(f"name:{part.name}" if part.name else "anonymous")
        if self._by_key and self._by_key.get(f"id:{part.id}"):
            return self._pop(f"id:{part.id}")
        lone = self.lone.pop(part.id, None)
        return None if lone is None or lone[0] in self._taken else lone[0]

    def close(self, number: int) -> int:
        self._taken.add(number)
        return number

    def _pop(self, key: str) -> int | None:
        stack = self._by_key.get(key, [])
        while stack:
            queue = stack[-1][1]
            while queue:
                number = queue.popleft()
                if number not in self._taken:
                    self._taken.add(number)
                    return number
            stack.pop()
        return None


def build_units(messages: Sequence[Message], pairs: Pairs) -> tuple[Unit, ...]:
    """Cut the array wherever no pair is split and no reasoning is parted from what it led to."""
    leads = _leads_on(messages)
    units: list[Unit] = []
    start = end = 0
    last = len(messages) - 1
    calls: list[Call] = []
    coming = iter(pairs.calls)  # they stand in the array's order
    call = next(coming, None)
    for index, is_led_on in enumerate(leads):
        while call is not None and call.index == index:
            calls.append(call)
            if call.result_index > end:
                end = call.result_index
            call = next(coming, None)
        if index < end:
            continue
        end = index + 1
        if index == last or not is_led_on:
            units.append(Unit(start, end, tuple(calls)))
            start = end
            if calls:
                calls = []
    return tuple(units)


def _leads_on(messages: Sequence[Message]) -> list[bool]:
    """Which messages belong to the next: mere reasoning, and what the model said on from it in the same step."""
    thoughts = [message.kinds == REASONING for message in messages]
    if True not in thoughts:
        return thoughts
    leads = thoughts.copy()
    for index in range(1, len(messages) - 1):
        if leads[index - 1] and not thoughts[index] and _speaks_on(messages[index]):
            leads[index] = not thoughts[index + 1] and _speaks_on(messages[index + 1])
    return leads


def _speaks_on(message: Message) -> bool:
    """Whether it can be what the model said on in a step; what stands for a collapsed round or a compaction is not."""
    if message.view.role != "assistant" or "compaction" in message.view.marks:
        return False
    parts = message.view.parts
    return not (len(parts) == 1 and parts[0].kind == "text" and is_collapsed(parts[0].text))


def frontier(messages: Sequence[Message]) -> int:
    """Where the live step starts: calls from here on may still wait for their results."""
    index = len(messages)
    while index and messages[index - 1].kinds == RESULT:
        index -= 1
    while index and messages[index - 1].view.role == "assistant" and _has_open_call(messages[index - 1]):
        index -= 1
    return index


def _has_open_call(message: Message) -> bool:
    """Whether a call in it is not answered in the same message."""
    if not message.kinds & CALL:
        return False
    kinds = [part.kind for part in message.view.parts]
    return kinds.count("call") > kinds.count("result")


def is_whole_step(message: Message) -> bool:
    """Whether it tells itself how its calls ended: it holds their results, or says that there are none."""
    return message.kinds & RESULT != 0 or any(part.state == "pending" for part in message.view.parts)


def is_prompt(message: Message) -> bool:
    """A user message that asks something, rather than one that only carries tool results."""
    return message.view.role == "user" and message.kinds & (TEXT | MEDIA) != 0

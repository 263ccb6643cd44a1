"""Generated conversations of any length and size: the simulated fleet's, for linearity and where there is no corpus."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Any, Final

from contracts import Snapshot, encode, raw
from service.fleet import FORMATS, RENDERERS, FleetFormat, Step, steps

SEED: Final = 20_261_118
FALLBACK_LENGTHS: Final = (12, 40, 80, 160, 320)
FALLBACK_EACH: Final = 8


def generate(wire: FleetFormat, messages: int, *, growth: int = 1, number: int = 0) -> bytes:
    """A snapshot of so many messages, its tool results ``growth`` times as long as the fleet's."""
    items = islice(_messages(wire, growth, number), messages)
    return encode(Snapshot("generated", [raw(item) for item in items], format=wire))


def generate_some() -> list[bytes]:
    """Snapshots to stand in for a corpus."""
    sizes = ((length, number) for length in FALLBACK_LENGTHS for number in range(FALLBACK_EACH))
    return [generate(wire, length, number=number) for length, number in sizes for wire in FORMATS]


def _messages(wire: FleetFormat, growth: int, number: int) -> Iterator[dict[str, Any]]:
    for chapter in count():
        for step in steps(random.Random(f"{SEED}/{number}/{chapter}")):
            yield from RENDERERS[wire](_unique(step, chapter, growth))


def _unique(step: Step, chapter: int, growth: int) -> Step:
    calls = (replace(call, id=f"{call.id}_{chapter}", answer=call.answer * growth) for call in step.calls)
    return replace(step, calls=tuple(calls))

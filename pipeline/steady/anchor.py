"""Anchor: by what a cut knows its array again."""

import hashlib
from collections.abc import Sequence
from typing import Final

from msgspec import Raw

ANCHOR_DIGITS: Final = 12


class Anchor:
    """By what a cut knows its array again: a hash of all before it, each message hashed once."""

    def __init__(self, originals: Sequence[Raw]) -> None:
        self._originals = originals
        self._hash = hashlib.sha256()
        self._next = 0

    def at(self, place: int) -> str:
        """The hash of the messages before a place that is never earlier than the last one asked for."""
        while self._next < place:
            self._hash.update(self._originals[self._next])
            self._next += 1
        return self._hash.hexdigest()[:ANCHOR_DIGITS]

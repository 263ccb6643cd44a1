"""Health: what a worker knows of its own state."""

import time
from dataclasses import dataclass, field
from typing import Final

BRISK_S: Final = 0.1
HEARD_WITHIN_S: Final = 15.0
TURN_WITHIN_S: Final = 15.0  # pruning one snapshot keeps the loop from turning, for its deadline at most


@dataclass
class Health:
    """When the server last answered and when the loop last turned, both never at first, and what it is about."""

    is_draining: bool = False
    is_durable: bool = True
    is_reaping: bool = False
    last_suspect: float = field(default=float("-inf"))
    last_heard: float = field(default=float("-inf"))
    last_turn: float = field(default=float("-inf"))

    def has_heard(self) -> None:
        """Note that the server has answered a read or a settle."""
        self.last_heard = time.monotonic()

    def has_turned(self) -> None:
        """Note that the event loop is alive."""
        self.last_turn = time.monotonic()

    def has_suspect(self) -> None:
        """Note that a suspect is about to be tried."""
        self.last_suspect = time.monotonic()

    @property
    def is_recovering(self) -> bool:
        """Whether suspects are being worked off, and none takes long: then new entries can wait for them."""
        return self.is_reaping and time.monotonic() - self.last_suspect < BRISK_S

    @property
    def is_live(self) -> bool:
        """Whether the event loop turned lately; a server that is away does not matter here."""
        return time.monotonic() - self.last_turn < TURN_WITHIN_S

    @property
    def is_ready(self) -> bool:
        """Whether snapshots are being read: the group exists, the server answered lately, no stop has begun.

        A server that no longer gives what was promised at the start counts as not ready too.
        """
        return self.is_durable and not self.is_draining and time.monotonic() - self.last_heard < HEARD_WITHIN_S

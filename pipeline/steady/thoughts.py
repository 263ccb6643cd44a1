"""Thoughts: signed thinking that goes with a cut."""

from contracts import Policy
from pipeline.conversation import Conversation
from pipeline.tokens import count_part
from pipeline.view import Message


class Thoughts:
    """Signed thinking that goes with a cut, for it is bound to what the cut changed; each piece is taken once."""

    def __init__(self, conversation: Conversation, policy: Policy) -> None:
        self._count = conversation.count
        self._is_stripped = policy.thinking == "strip"
        self._ahead: list[tuple[int, int]] = []  # not yet decided, newest last
        self._before: list[tuple[int, int]] = []  # in front of every edit so far
        self._first_edit: int | None = None
        self.live_turn = 0

    def take(self, index: int, message: Message) -> None:
        """Take in the next message."""
        if message.role == "assistant":
            self.live_turn = index - 1
            bound = [part for part in message.parts if part.kind == "reasoning" and part.state == "bound"]
            if bound and self._is_stripped:
                self._ahead.append((index - 1, sum(count_part(part, self._count) for part in bound)))
        elif any(part.kind != "result" for part in message.parts):
            self.live_turn = index

    def begin(self) -> list[tuple[int, int]]:
        """What a new cut strips for the edits made before it."""
        return self._take() if self._first_edit is not None else []

    def edited(self, index: int) -> list[tuple[int, int]]:
        """What an edit strips."""
        if self._first_edit is not None and index >= self._first_edit:
            return []
        self._first_edit = index
        stripped: list[tuple[int, int]] = []
        while self._before and self._before[-1][0] >= index:
            stripped.append(self._before.pop())
        return stripped + self._take()

    def _take(self) -> list[tuple[int, int]]:
        first = self._first_edit or 0
        ready = [thought for thought in self._ahead if thought[0] < self.live_turn]
        self._ahead = self._ahead[len(ready) :]
        self._before += [thought for thought in ready if thought[0] < first]
        return [thought for thought in ready if thought[0] >= first]

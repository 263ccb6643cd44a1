"""Edits: how a stage changes a conversation and leaves a ledger that gives the same bytes again."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from contracts import Code, Counts, Edit, raw
from contracts.result import Action, Op
from pipeline.conversation import Conversation
from pipeline.splice import Change, splice
from pipeline.view import Message


class StageResult(Struct, frozen=True):
    """What a stage gives back: the conversation it made, the edits that made it, and what it wants said."""

    conversation: Conversation
    edits: tuple[Edit, ...] = ()
    notes: tuple[Code, ...] = ()
    counts: Counts = Counts()


class Editor:
    """Collects one stage's changes; an edit that does not shrink its message is not made."""

    def __init__(self, conversation: Conversation, stage: str) -> None:
        self.conversation = conversation
        self._stage = stage
        self._messages: list[Message | None] = list(conversation.messages)
        self._added: dict[int, list[Message]] = {}
        self._edits: list[Edit] = []
        self._retracted: set[int] = set()

    @property
    def edits(self) -> tuple[Edit, ...]:
        """What has been done so far."""
        return tuple(self._edits)

    def drop(self, index: int, reason: Code, action: Action = "drop", tool: str = "") -> None:
        """Remove a message; one that this run had added disappears from the ledger too."""
        message = self._messages[index]
        if message is None or (action != "repair" and index >= self.conversation.live):
            return
        self._messages[index] = None
        if message.is_added:
            self._retracted.add(id(message.raw))
        else:
            self._record(action, "drop", message, 0, reason, UNSET, tool)

    def rewrite(self, index: int, changes: Iterable[Change], action: Action, reason: Code, tool: str = "") -> bool:
        """Change some places of a message, unless that would not shrink it; repairs are exempt."""
        message = self._messages[index]
        if message is None or self._is_live(index, action):
            return False
        wanted = list(changes)
        item = splice(message.raw, wanted)
        new = self.conversation.retell(message, item, wanted)
        if new is None:
            new = self._read(item, message.position, message.is_added)
        return self._put(index, message, new, action, reason, tool, must_shrink=True)

    def replace(
        self, index: int, value: Any, action: Action, reason: Code, tool: str = "", *, must_shrink: bool = True
    ) -> bool:
        """Put another item in a message's place, unless that would not shrink it; repairs are exempt."""
        message = self._messages[index]
        if message is None or self._is_live(index, action):
            return False
        new = self._read(value, message.position, message.is_added)
        return self._put(index, message, new, action, reason, tool, must_shrink=must_shrink)

    def _put(
        self, index: int, message: Message, new: Message, action: Action, reason: Code, tool: str, *, must_shrink: bool
    ) -> bool:
        if must_shrink and action != "repair" and new.tokens >= message.tokens:
            return False
        self._messages[index] = new
        if message.is_added:
            edit = Edit(self._stage, action, "insert", message.position, reason, 0, new.tokens, new.raw, tool=tool)
            self._edits.append(edit)
        else:
            self._record(action, "replace", message, new.tokens, reason, new.raw, tool)
        return True

    def _is_live(self, index: int, action: Action) -> bool:
        return action != "repair" and index >= self.conversation.live

    def insert(self, index: int, value: Any, action: Action, reason: Code) -> Message:
        """Add an item before a message, behind what was added there earlier."""
        messages = self.conversation.messages
        position = messages[index].position if index < len(messages) else len(self.conversation.originals)
        while index < len(messages) and messages[index].is_added and messages[index].position == position:
            index += 1
        new = self._read(Raw(bytes(value)) if isinstance(value, Raw) else value, position, True)  # known by its object
        self._added.setdefault(index, []).append(new)
        edit = Edit(self._stage, action, "insert", position, reason, 0, new.tokens, new.raw)
        self._edits.append(edit)
        return new

    def _read(self, value: Any, position: int, is_added: bool) -> Message:
        """A raw item, or a value of ours that need not be parsed again, as a message."""
        if isinstance(value, Raw):
            return self.conversation.read(value, position, is_added=is_added)
        return self.conversation.view(raw(value), value, position, is_added)

    def result(self, notes: Iterable[Code] = (), counts: Counts = Counts()) -> StageResult:  # noqa: B008  frozen
        """The stage's result; the conversation is the same object when nothing was done."""
        if not self._edits and not self._retracted:
            return StageResult(self.conversation, (), tuple(notes), counts)
        messages: list[Message] = []
        start = 0
        for index in sorted(self._added):
            messages += [message for message in self._messages[start:index] if message is not None]
            messages += self._added[index]
            start = index
        messages += [message for message in self._messages[start:] if message is not None]
        return StageResult(self.conversation.with_messages(messages), self.edits, tuple(notes), counts)

    def _record(
        self, action: Action, op: Op, message: Message, after: int, reason: Code, item: Raw | UnsetType, tool: str
    ) -> None:
        digest = self.conversation.digest(message.position)
        edit = Edit(self._stage, action, op, message.position, reason, message.tokens, after, item, digest, tool)
        self._edits.append(edit)


def settle_ledger(edits: Iterable[Edit], messages: Iterable[Message]) -> list[Edit]:
    """The edits without insertions that a later one took back or changed; insertions stand in the array's order."""
    edits = list(edits)
    if not any(edit.op == "insert" for edit in edits):
        return edits
    order = {id(message.raw): number for number, message in enumerate(messages) if message.is_added}
    kept = [edit for edit in edits if edit.op != "insert" or id(edit.item) in order]
    inserted = iter(sorted((edit for edit in kept if edit.op == "insert"), key=lambda edit: order[id(edit.item)]))
    return [next(inserted) if edit.op == "insert" else edit for edit in kept]


def apply_edits(messages: Sequence[Raw], edits: Iterable[Edit]) -> list[Raw]:
    """The published array: the last replacement or removal at a position holds, insertions stand in the order made."""
    changed: dict[int, Raw | None] = {}
    added: dict[int, list[Raw]] = {}
    for edit in edits:
        if edit.op == "insert":
            added.setdefault(edit.position, []).append(_item(edit))
        else:
            changed[edit.position] = _item(edit) if edit.op == "replace" else None
    result: list[Raw] = []
    for position, original in enumerate(messages):
        result.extend(added.get(position, ()))
        item = changed.get(position, original)
        if item is not None:
            result.append(item)
    result.extend(added.get(len(messages), ()))
    return result


def count_after(messages_before: int, edits: Iterable[Edit]) -> int:
    """How many messages ``apply_edits`` gives."""
    last = {}
    inserted = 0
    for edit in edits:
        if edit.op == "insert":
            inserted += 1
        else:
            last[edit.position] = edit.op
    return messages_before + inserted - sum(op == "drop" for op in last.values())


def _item(edit: Edit) -> Raw:
    assert isinstance(edit.item, Raw)
    return edit.item

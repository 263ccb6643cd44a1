"""Thinking: signed reasoning is bound to all that precedes it, so an edit makes what follows it worthless."""

from typing import Any

from msgspec import Raw

from contracts import Code
from pipeline.conversation import Conversation, parse
from pipeline.edits import Editor, StageResult
from pipeline.splice import DELETE, splice
from pipeline.view import REASONING


def first_changed(conversation: Conversation) -> int | None:
    """The index of the first message that is not the original one in its place."""
    for index, message in enumerate(conversation.messages):
        if message.is_added or message.position != index or not _is_same(message.raw, conversation.originals[index]):
            return index
    return len(conversation.messages) if len(conversation.messages) < len(conversation.originals) else None


def _is_same(item: Raw, original: Raw) -> bool:
    """Whether a signature would find no difference: cache marks are outside the comparison."""
    return item is original or (b'"cache_control"' in bytes(original) and _unmarked(item) == _unmarked(original))


def _unmarked(item: Raw) -> Any:
    value = parse(item)
    content = value.get("content") if isinstance(value, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            block.pop("cache_control", None)
    return value


def bound_after(conversation: Conversation, index: int, end: int) -> list[int]:
    """The messages from ``index`` up to ``end`` that carry bound thinking."""
    return [
        i
        for i in range(index, end)
        if conversation.messages[i].kinds & REASONING
        and any(part.kind == "reasoning" and part.state == "bound" for part in conversation.messages[i].parts)
    ]


def live_turn(conversation: Conversation) -> int:
    """Where the last assistant message stands: while its tools are answered its thinking must stay first."""
    for index in range(len(conversation.messages) - 1, -1, -1):
        message = conversation.messages[index]
        if message.role == "assistant":
            return index
        if any(part.kind != "result" for part in message.parts):
            break
    return len(conversation.messages)


def strip_bound(conversation: Conversation, stage: str, until: int | None = None) -> StageResult:
    """Remove bound thinking after the first change, up to a position; a message of nothing else goes."""
    start = first_changed(conversation)
    if start is None:
        return StageResult(conversation)
    editor = Editor(conversation, stage)
    for index in bound_after(conversation, start, live_turn(conversation)):
        message = conversation.messages[index]
        if until is not None and message.position >= until:
            break  # made after the last cut was published: bound to what the model really saw
        bound = [part for part in message.parts if part.kind == "reasoning" and part.state == "bound"]
        if all(part.kind == "reasoning" or (part.kind == "text" and not part.text.strip()) for part in message.parts):
            editor.drop(index, Code.STALE_THINKING, "strip")
        else:
            rest = splice(message.raw, [(part.path, DELETE) for part in bound])
            # A signature alone weighs nothing and is refused all the same.
            editor.replace(index, rest, "strip", Code.STALE_THINKING, must_shrink=False)
    return editor.result()

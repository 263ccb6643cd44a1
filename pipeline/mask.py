"""Mask: lazy deletion of old tool outputs behind an active and a protected zone, committed only when it is worth it."""

from collections.abc import Iterator

from contracts import Code
from contracts.policy import Mask
from pipeline.conversation import Conversation
from pipeline.edits import Editor
from pipeline.notices import COMPACTED, STUBS
from pipeline.shorten import CHARS_PER_TOKEN
from pipeline.splice import Change
from pipeline.view import RESULT, Part


def mask_old_outputs(conversation: Conversation, config: Mask, editor: Editor) -> None:
    """Compact the outputs beyond the protected tokens, if together they free the minimum."""
    chosen: dict[int, list[Part]] = {}
    total = freed = 0
    for index, part in _outputs_newest_first(conversation, config):
        size = len(part.text) // CHARS_PER_TOKEN
        total += size
        if total > config.protect_tokens:
            freed += size
            chosen.setdefault(index, []).append(part)
    if not freed or freed < config.minimum_tokens:
        return
    for index, parts in sorted(chosen.items()):
        changes = [change for part in parts for change in _compacted(conversation, part)]
        if changes:
            names = dict.fromkeys(conversation.tool_name(index, part) for part in parts)
            editor.rewrite(index, changes, "mask", Code.OLD_TOOL_OUTPUT, ", ".join(names))


def _outputs_newest_first(conversation: Conversation, config: Mask) -> Iterator[tuple[int, Part]]:
    """Completed, unprotected outputs outside the active zone, back to a summary or an earlier compaction."""
    turns = 0
    for index in range(len(conversation.messages) - 1, -1, -1):
        message = conversation.messages[index]
        turns += message.role == "user" and message.kinds != RESULT
        if turns < config.active_user_turns:
            continue
        if "summary" in message.view.marks:
            return
        for part in reversed(message.parts):
            if part.kind != "result" or part.state in ("error", "pending"):
                continue
            if conversation.tool_name(index, part) in config.protected_tools:
                continue
            if part.state == "compacted" or part.text == COMPACTED:
                return
            if part.text not in STUBS:
                yield index, part


def _compacted(conversation: Conversation, part: Part) -> list[Change]:
    dialect = conversation.dialect
    if dialect.mark_compacted is not None:
        return dialect.mark_compacted(part, conversation.moment)
    return dialect.put_result(part, COMPACTED) if len(part.text) > len(COMPACTED) else []

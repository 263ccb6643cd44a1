"""Compress: make tool results and retrieved context smaller in place; the pairs they belong to stay whole."""

from contracts import Code, Policy
from contracts.policy import Compress

from pipeline.conversation import Conversation
from pipeline.edits import Editor, StageResult
from pipeline.shorten import CHARS_PER_TOKEN, SHAPES
from pipeline.splice import Change
from pipeline.units import frontier
from pipeline.view import Part

STAGE = "compress"


def compress(conversation: Conversation, policy: Policy) -> StageResult:
    """Cap every tool result above ``max_tool_result_tokens``; leave everything else alone."""
    editor = Editor(conversation, STAGE)
    if policy.compress.max_tool_result_tokens is not None:
        cap_results(conversation, policy.compress, editor)
    return editor.result()


def cap_results(conversation: Conversation, config: Compress, editor: Editor) -> None:
    """Shorten the texts of each long result, message by message."""
    limit = (config.max_tool_result_tokens or 0) * CHARS_PER_TOKEN
    for index, message in enumerate(conversation.messages):
        results = [part for part in message.parts if part.kind == "result" and part.state != "pending"]
        changes = [change for part in results for change in shorten_result(part, limit, config.shape)]
        if changes:
            editor.rewrite(index, changes, "shorten", Code.OVER_RESULT_CAP, tool_of(conversation, index))


def shorten_result(part: Part, limit: int, shape: str) -> list[Change]:
    """The changes that bring a result's texts under ``limit`` characters in all; none where it would not shrink."""
    if sum(len(text) for _, text in part.slots) // CHARS_PER_TOKEN <= limit // CHARS_PER_TOKEN:
        return []
    changes: list[Change] = []
    room = limit
    for path, text in part.slots:
        short = SHAPES[shape](text, room)
        room = max(0, room - len(text))
        if len(short) < len(text):
            changes.append((path, short))
    return changes


def tool_of(conversation: Conversation, index: int) -> str:
    """The tools whose results a message holds, for the ledger."""
    calls = conversation.unit_of[index].calls
    return ", ".join(dict.fromkeys(call.part.name for call in calls if call.result_index == index))

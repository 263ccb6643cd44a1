"""Compress: make tool results and retrieved context smaller in place; the pairs they belong to stay whole."""

from typing import Final

from contracts import Code, Counts, Edit, Policy
from contracts.policy import Compress, Steady
from pipeline.conversation import Conversation
from pipeline.edits import Editor, StageResult
from pipeline.mask import mask_old_outputs
from pipeline.notices import STUBS
from pipeline.rerank import rerank_context
from pipeline.shorten import CHARS_PER_TOKEN, SHAPES
from pipeline.splice import Change
from pipeline.steady import make_plan
from pipeline.view import RESULT, Part

STAGE: Final = "compress"


def compress(conversation: Conversation, policy: Policy) -> StageResult:
    """Mask old outputs, cap what is still long, rerank retrieved context: each where the policy asks for it."""
    config = policy.compress
    edits: tuple[Edit, ...] = ()
    if config.mask is not None:
        masking = Editor(conversation, STAGE)
        mask_old_outputs(conversation, config.mask, masking)
        conversation, edits = masking.result().conversation, masking.edits
    editor = Editor(conversation, STAGE)
    counts: Counts = Counts()
    notes: tuple[Code, ...] = ()
    if config.max_tool_result_tokens is not None:
        cap_results(conversation, config, editor)
    if config.rag is not None:
        counts, notes = rerank_context(conversation, config.rag, editor)
    result = editor.result(notes, counts)
    planned = _make_planned(result.conversation, policy)
    return StageResult(planned.conversation, edits + result.edits + planned.edits, result.notes, result.counts)


def _make_planned(conversation: Conversation, policy: Policy) -> StageResult:
    """The rewrites that `steady` planned; its plan goes on with the conversation."""
    if not isinstance(policy.prune, Steady):
        return StageResult(conversation)
    plan = make_plan(conversation, policy, policy.prune)
    editor = Editor(conversation, STAGE)
    for index, message in enumerate(conversation.messages if plan.rewrites else ()):
        change = plan.rewrites.get(message.position)
        if change is not None and not message.is_added and message.position not in plan.dropped | plan.freed:
            editor.replace(index, change.item, change.action, change.reason, change.tool)
    return StageResult(editor.result().conversation.with_plan(plan), editor.edits)


def cap_results(conversation: Conversation, config: Compress, editor: Editor) -> None:
    """Shorten the texts of each long result, message by message."""
    limit = (config.max_tool_result_tokens or 0) * CHARS_PER_TOKEN
    for index, message in enumerate(conversation.messages):
        if not message.kinds & RESULT or memoryview(message.raw).nbytes <= limit:
            continue  # no text in it can have more characters than it has bytes
        results = [part for part in message.parts if part.kind == "result" and part.state in ("", "error")]
        changes = [change for part in results for change in shorten_result(part, limit, config.shape)]
        if changes:
            tools = dict.fromkeys(conversation.tool_name(index, part) for part in results)
            editor.rewrite(index, changes, "shorten", Code.OVER_RESULT_CAP, ", ".join(tools))


def shorten_result(part: Part, limit: int, shape: str) -> list[Change]:
    """The changes that bring a result's texts under ``limit`` characters in all; none where it would not shrink."""
    if sum(len(text) for _, text in part.slots) // CHARS_PER_TOKEN <= limit // CHARS_PER_TOKEN:
        return []
    if part.text in STUBS:
        return []
    changes: list[Change] = []
    room = limit
    for path, text in part.slots:
        short = SHAPES[shape](text, room)
        room = max(0, room - len(text))
        if len(short) < len(text):
            changes.append((path, short))
    return changes

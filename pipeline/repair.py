"""Repair: constant, derived changes that make a broken array acceptable; what cannot be mended is left as it came."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from contracts import Code, Edit
from pipeline.conversation import Conversation
from pipeline.dialects.pairing import find_breaks
from pipeline.edits import Editor, StageResult
from pipeline.notices import RESUMED
from pipeline.splice import DELETE, Change
from pipeline.units import Call
from pipeline.view import Message

STAGE: Final = "validate"
MOST_PASSES: Final = 6


def repair(conversation: Conversation) -> StageResult:
    """Mend contents, pairs and the start, over again while that helps: what one repair leaves can need another."""
    edits: list[Edit] = []
    for _ in range(MOST_PASSES):
        made = len(edits)
        for mend in (mend_contents, _mend_pairs, _mend_start):
            result = mend(conversation)
            conversation = result.conversation
            edits += result.edits
        if len(edits) == made or not conversation.broken_rules:
            break
    return StageResult(conversation, tuple(edits))


def mend_contents(conversation: Conversation) -> StageResult:
    """Change what the provider rejects in single messages, or in neighbours that it takes for one."""
    editor = Editor(conversation, STAGE)
    for index, changes in conversation.dialect.tidy(conversation.messages, conversation.pairs).items():
        if changes is None:
            is_blank = all(part.kind == "text" and not part.text.strip() for part in conversation.messages[index].parts)
            editor.drop(index, Code.EMPTY_CONTENT if is_blank else Code.RULE_REPAIR, "repair")
        else:
            editor.rewrite(index, changes, "repair", Code.RULE_REPAIR)
    return editor.result()


def _mend_start(conversation: Conversation) -> StageResult:
    if f"{conversation.dialect.name}.first_role" not in conversation.broken_rules:
        return StageResult(conversation)
    editor = Editor(conversation, STAGE)
    spoken = [i for i, message in enumerate(conversation.messages) if message.role not in ("system", "other")]
    if spoken:
        editor.insert(spoken[0], conversation.dialect.say("user", RESUMED), "repair", Code.KEPT_IN_FRONT)
    return editor.result()


def _mend_pairs(conversation: Conversation) -> StageResult:
    messages, dialect = conversation.messages, conversation.dialect
    breaks = find_breaks(messages, conversation.pairs, dialect.answer_ends(messages))
    if not (breaks.unanswered or breaks.misplaced or breaks.unmatched):
        return StageResult(conversation)
    editor = Editor(conversation, STAGE)
    moved = _movable(messages, breaks.misplaced)
    lost = [call for call in breaks.misplaced if call.result_index not in moved]
    changes: dict[int, list[Change]] = {}
    for index, part in [*breaks.unmatched, *((call.result_index, call.result) for call in lost if call.result)]:
        changes.setdefault(index, []).append((part.path, DELETE))
    places = dialect.answer_places(messages)
    for place, calls in _by_place([*breaks.unanswered, *lost], places).items():
        is_holder = place < len(messages) and place not in moved and _holds_results(messages[place])
        holder = messages[place] if is_holder else None
        more, items = dialect.answer(calls, holder)
        changes.setdefault(place, []).extend(more)
        for item in items:
            editor.insert(place, item, "repair", Code.UNANSWERED_CALL)
    for index, call_index in moved.items():
        editor.insert(places[call_index], messages[index].raw, "repair", Code.UNMATCHED_RESULT)
        editor.drop(index, Code.UNMATCHED_RESULT, "repair")
    for index, mine in changes.items():
        if mine:
            _change(editor, index, messages[index], mine)
    return editor.result()


def _holds_results(message: Message) -> bool:
    return message.role == "user" and any(part.kind == "result" for part in message.parts)


def _movable(messages: Sequence[Message], misplaced: list[Call]) -> dict[int, int]:
    """Messages of nothing but late results of one message: they can move to where the provider looks."""
    targets: dict[int, set[int]] = {}
    for call in misplaced:
        targets.setdefault(call.result_index, set()).add(call.index)
    counts = Counter(call.result_index for call in misplaced)
    return {
        index: next(iter(calls))
        for index, calls in targets.items()
        if len(calls) == 1
        and counts[index] == len(messages[index].parts)
        and messages[index].role in ("user", "tool")  # elsewhere it would be as wrong as here
    }


def _by_place(calls: list[Call], places: Sequence[int]) -> dict[int, list[Call]]:
    grouped: dict[int, list[Call]] = {}
    for call in sorted(calls, key=lambda call: call.index):
        grouped.setdefault(places[call.index], []).append(call)
    return grouped


def _change(editor: Editor, index: int, message: Message, changes: list[Change]) -> None:
    removed = sum(value is DELETE for _, value in changes)
    if removed == len(changes) == len(message.parts):
        editor.drop(index, Code.UNMATCHED_RESULT, "repair")
    else:
        editor.rewrite(index, changes, "repair", Code.RULE_REPAIR)

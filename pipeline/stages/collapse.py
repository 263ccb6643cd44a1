"""Collapse: old tool rounds become a stub, or one short text; the newest rounds and the live step stay."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from msgspec import Raw

from contracts import Code, Policy
from pipeline.conversation import Conversation
from pipeline.edits import Editor, StageResult
from pipeline.notices import CLEARED, INTERRUPTED, collapsed_text
from pipeline.splice import Change, splice
from pipeline.tokens import Counter
from pipeline.units import Call, Unit
from pipeline.view import CALL, MEDIA, OPAQUE, REASONING, RESULT, TEXT, Role

STAGE: Final = "collapse"
LONGEST_AGE: Final = 99_999
TEXTS_KNOWN: Final = 1_024
SPOKEN: Final = TEXT | CALL | RESULT | REASONING
ANYTHING: Final = SPOKEN | MEDIA | OPAQUE


def collapse(conversation: Conversation, policy: Policy) -> StageResult:
    """Collapse every settled round that more than ``after_turns`` messages follow; off when that is unset."""
    after_turns, into = policy.collapse.after_turns, policy.collapse.into
    if after_turns is None:
        return StageResult(conversation)
    editor = Editor(conversation, STAGE)
    for unit in conversation.units:
        turns_ago = len(conversation.messages) - unit.end
        if turns_ago <= after_turns or not is_collapsible(conversation, unit, policy):
            continue
        if into == "stub":
            _clear_results(unit, editor)
        else:
            _replace_round(conversation, unit, into, turns_ago, editor)
    return editor.result()


def is_collapsible(conversation: Conversation, unit: Unit, policy: Policy) -> bool:
    """A settled round of calls and nothing but their results, of tools that nobody protects."""
    if not unit.is_round or unit.is_open or (len(unit.calls) > 1 and not policy.collapse.multi_tool):
        return False
    tools = policy.keep.tools
    if tools and any(call.part.name in tools for call in unit.calls):
        return False
    if unit.end > conversation.live or any(call.result and call.result.text == INTERRUPTED for call in unit.calls):
        return False
    messages = conversation.messages[unit.start : unit.end]
    positions = policy.keep.positions
    if positions and any(message.position in positions and not message.is_added for message in messages):
        return False
    is_in_place = policy.collapse.into == "stub" or conversation.dialect.text_part is not None
    spoken = ANYTHING if is_in_place else SPOKEN
    for message in messages:
        role = message.view.role
        if role == "other" or message.kinds & ~(spoken if role == "assistant" else RESULT):
            return False
    return True


def _clear_results(unit: Unit, editor: Editor) -> None:
    by_message: dict[int, list[Call]] = {}
    for call in unit.calls:
        by_message.setdefault(call.result_index, []).append(call)
    for index, calls in by_message.items():
        changes = [change for call in calls for change in _cleared(editor, call)]
        if changes:
            editor.rewrite(index, changes, "collapse", Code.OLD_ROUND, ", ".join(_names(calls)))


def _cleared(editor: Editor, call: Call) -> list[Change]:
    result = call.result
    if result is None or result.text == CLEARED or len(result.text) + result.size <= len(CLEARED):
        return []
    return editor.conversation.dialect.put_result(result, CLEARED)


def _replace_round(conversation: Conversation, unit: Unit, role: Role, turns_ago: int, editor: Editor) -> None:
    dialect = conversation.dialect
    if dialect.text_part is not None:
        _replace_parts(conversation, unit, dialect.text_part, turns_ago, editor)
        return
    names = tuple([call.part.name for call in unit.calls])
    before = sum([message.tokens for message in conversation.messages[unit.start : unit.end]])
    if _most_tokens(names, conversation.count) >= before:
        return
    replaced, tools = unit.calls[0].index, ", ".join(_names(unit.calls))
    said = dialect.say(role, collapsed_text(names, turns_ago))
    editor.replace(replaced, said, "collapse", Code.OLD_ROUND, tools, must_shrink=False)
    for index in range(unit.start, unit.end):
        if index != replaced:
            editor.drop(index, Code.OLD_ROUND, "collapse", tools)


@lru_cache(TEXTS_KNOWN)
def _most_tokens(names: tuple[str, ...], count: Counter) -> int:
    """What the text for a round may take: the longest age decides, so that a later run decides the same."""
    return count(collapsed_text(names, LONGEST_AGE))


def _replace_parts(
    conversation: Conversation, unit: Unit, text_part: Callable[[str], Any], turns_ago: int, editor: Editor
) -> None:
    """Texts for the calls of a message that holds their results too; errors and what is compacted already stay."""
    calls = [call for call in unit.calls if call.result is not None and call.result.state == ""]

    def replaced(age: int) -> Raw:
        texts = [(call.part.path, text_part(collapsed_text([call.part.name], age))) for call in calls]
        return splice(conversation.messages[unit.start].raw, texts)

    if calls and conversation.read(replaced(LONGEST_AGE), 0).tokens < conversation.messages[unit.start].tokens:
        tools = ", ".join(_names(calls))
        editor.replace(unit.start, replaced(turns_ago), "collapse", Code.OLD_ROUND, tools, must_shrink=False)


def _names(calls: tuple[Call, ...] | list[Call]) -> list[str]:
    return list(dict.fromkeys(call.part.name for call in calls))

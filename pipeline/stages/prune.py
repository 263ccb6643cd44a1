"""Prune: remove whole units as the policy's strategy decides, and leave the array one that a provider accepts."""

from typing import Final

from contracts import Code, Counts, Policy, Refused
from pipeline.conversation import Conversation
from pipeline.edits import Editor, StageResult
from pipeline.keep import is_pinned, is_turn
from pipeline.notices import notice_text
from pipeline.strategies import STRATEGIES, Gone, Removal
from pipeline.strategies.steady import freed
from pipeline.units import is_prompt
from pipeline.view import RESULT

STAGE: Final = "prune"


def prune(conversation: Conversation, policy: Policy) -> StageResult:
    """Drop what the provider ignores anyway, then what the strategy chose."""
    if policy.prune is None or not conversation.messages:
        return StageResult(conversation)
    free = remove(conversation, before_compaction(conversation, policy))
    for kind, strategy in STRATEGIES:
        if isinstance(policy.prune, kind):
            result = remove(free.conversation, strategy(free.conversation, policy, policy.prune))
            turns = free.counts.turns_removed + result.counts.turns_removed
            return StageResult(result.conversation, free.edits + result.edits, result.notes, Counts(turns))
    raise Refused(Code.BAD_POLICY, f"this version has no strategy {type(policy.prune).__struct_config__.tag}")


def before_compaction(conversation: Conversation, policy: Policy) -> Removal:
    """Every unit before the provider's own latest compaction item: it is ignored upstream, so it goes for free."""
    if conversation.plan is not None:
        return freed(conversation, conversation.plan)
    last = max((i for i, message in enumerate(conversation.messages) if "compaction" in message.view.marks), default=0)
    units = [
        n
        for n, unit in enumerate(conversation.units if last else ())
        if unit.end <= last
        and not any(is_pinned(message, policy.keep) for message in conversation.messages[unit.start : unit.end])
    ]
    return Removal(units, Code.BEFORE_COMPACTION)


def remove(conversation: Conversation, removal: Removal) -> StageResult:
    """Drop the chosen units; notices of earlier runs are merged into the new one."""
    unchanged = StageResult(conversation, notes=removal.notes)
    gone = {i for n in removal.units for i in range(conversation.units[n].start, conversation.units[n].end)}
    notice = _notice(conversation, removal, gone)
    if notice and not removal.is_final:
        gone |= {i for i, message in enumerate(conversation.messages[:-1]) if notice_text(message)}
    if not removal.is_final and (not notice or not _leads(conversation, gone)):
        gone -= _kept_in_front(conversation, gone)
    turns = sum(is_turn(conversation.messages[i]) for i in gone)
    if not turns:
        return unchanged
    editor = Editor(conversation, STAGE)
    for index in sorted(gone):
        editor.drop(index, removal.reason)
    if notice:
        said = conversation.dialect.say(removal.notice_role or conversation.dialect.notice_role, notice)
        editor.insert(min(gone), said, "notice", Code.PRUNED_NOTICE)
    return editor.result(removal.notes, Counts(turns_removed=turns))


def _notice(conversation: Conversation, removal: Removal, gone: set[int]) -> str:
    """The text to leave behind; none where it would be longer than what it stands for."""
    turns = sum(is_turn(conversation.messages[i]) for i in gone)
    if removal.notice is None or not turns:
        return ""
    tools = [call.part.name for n in removal.units for call in conversation.units[n].calls]
    earlier = [text for message in conversation.messages[:-1] if (text := notice_text(message))]
    text = removal.notice(earlier, Gone(turns, tools))
    # What a repair added is no gain to take away again.
    removed = sum(conversation.messages[i].tokens for i in gone if not conversation.messages[i].is_added)
    return text if conversation.count(text) < removed else ""


def _leads(conversation: Conversation, gone: set[int]) -> bool:
    """Whether a notice at the first gap would be the first thing said."""
    return all(message.role == "system" for message in conversation.messages[: min(gone)])


def _kept_in_front(conversation: Conversation, gone: set[int]) -> set[int]:
    """The first user message, when without it the array would start with a role that the provider refuses."""
    messages = conversation.messages
    if not conversation.dialect.needs_user_first:
        return set()
    first = next((i for i, m in enumerate(messages) if i not in gone and m.role != "system"), None)
    if first is None or is_prompt(messages[first]):
        return set()
    prompts = [i for i, m in enumerate(messages[:first]) if is_prompt(m) and not m.kinds & RESULT]
    own = [i for i in prompts if is_turn(messages[i])]
    return set((own or prompts)[:1])  # a notice of ours will do

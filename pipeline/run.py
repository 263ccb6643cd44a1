"""The run: one snapshot and one policy in, one result out; every doubt ends at the last valid array."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from contracts import Code, Counts, Edit, Policy, PolicyRef, Pruned, Refused, Snapshot, Status, Tokens
from msgspec import UNSET, Struct

from pipeline.conversation import Conversation, read_conversation
from pipeline.edits import StageResult, settle_ledger
from pipeline.repair import repair
from pipeline.stages.collapse import collapse
from pipeline.stages.compress import compress
from pipeline.stages.prune import prune as prune_stage
from pipeline.stages.validate import validate
from pipeline.tokens import counter

Stage = Callable[[Conversation, Policy], StageResult]
Around = Callable[[str, Callable[[], StageResult]], StageResult]

STAGES: Final[tuple[tuple[str, Stage], ...]] = (
    ("compress", compress),
    ("collapse", collapse),
    ("prune", prune_stage),
    ("validate", validate),
)


class State(Struct, frozen=True):
    """What a run has come to: a conversation, how it was made, and what is to be said of it."""

    conversation: Conversation
    edits: tuple[Edit, ...] = ()
    notes: tuple[str, ...] = ()
    counts: Counts = Counts()

    def after(self, result: StageResult) -> "State":
        """This state with a stage's work added."""
        counts = Counts(
            self.counts.turns_removed + result.counts.turns_removed,
            self.counts.rag_kept + result.counts.rag_kept,
            self.counts.rag_dropped + result.counts.rag_dropped,
        )
        return State(result.conversation, self.edits + result.edits, self.notes + result.notes, counts)


def prune(snapshot: Snapshot, policy: Policy, *, around: Around | None = None) -> Pruned:
    """The pruned array with its ledger; ``Refused`` when the snapshot cannot be read or the policy rejects it."""
    wrap = around or _plainly
    conversation = read_conversation(snapshot.messages, snapshot.format, counter(policy.count), snapshot.taken_at or 1)
    if snapshot.previous_response_id:
        return _publish(snapshot, policy, conversation, State(conversation, notes=(Code.SERVER_SIDE_HISTORY,)), "unchanged")
    state = wrap("validate", lambda: _admit(conversation, policy))
    state = State(state.conversation, state.edits, state.notes)
    if is_below_gate(conversation, snapshot, policy):
        return _publish(snapshot, policy, conversation, State(state.conversation, state.edits, (*state.notes, Code.BELOW_GATE)))
    states, failed = _run_stages(state, policy, wrap)
    return _settle_on(snapshot, policy, conversation, states, failed, wrap)


def _plainly(_: str, call: Callable[[], StageResult]) -> StageResult:
    return call()


def _admit(conversation: Conversation, policy: Policy) -> StageResult:
    """The array as the stages may have it: repaired, trusted, or refused."""
    broken = conversation.dialect.violations(conversation.messages)
    if not broken:
        return StageResult(conversation)
    if policy.validate.input == "reject":
        raise Refused(Code.INVALID_INPUT, ", ".join(sorted({violation.rule for violation in broken})))
    if policy.validate.input == "trust":
        return StageResult(conversation, notes=(Code.INPUT_INVALID,))
    result = repair(conversation)
    note = Code.INPUT_REPAIRED if result.edits else Code.INPUT_INVALID
    return StageResult(result.conversation, result.edits, (note,))


def is_below_gate(conversation: Conversation, snapshot: Snapshot, policy: Policy) -> bool:
    """Whether the policy leaves a conversation of this size alone."""
    gate = policy.gate
    if gate is None or (gate.messages_over is None and gate.chars_over is None):
        return False
    is_long = gate.messages_over is not None and len(conversation.messages) > gate.messages_over
    size = sum(len(bytes(raw)) for raw in snapshot.messages) if gate.chars_over is not None else 0
    return not (is_long or (gate.chars_over is not None and size > gate.chars_over))


def _run_stages(state: State, policy: Policy, wrap: Around) -> tuple[list[State], list[str]]:
    """Every state on the way; a stage that raises leaves the state as it was."""
    states, failed = [state], []
    for name, stage in STAGES[:-1]:
        now = states[-1]
        try:
            states.append(now.after(wrap(name, lambda: stage(now.conversation, policy))))  # noqa: B023  called at once
        except Refused:
            raise
        except Exception:  # noqa: BLE001  the edge of the stages: in doubt, leave the snapshot alone
            failed.append(name)
            states.append(now)
    return states, failed


def _settle_on(
    snapshot: Snapshot, policy: Policy, original: Conversation, states: list[State], failed: list[str], wrap: Around
) -> Pruned:
    """The last state that passes the last stage and breaks no rule that was whole before."""
    name, last = STAGES[-1]
    allowed = Counter(v.rule for v in original.dialect.violations(states[0].conversation.messages))
    limit = max(original.tokens, states[0].conversation.tokens)
    blame: list[str] = [Code.STAGE_FAILED] if failed else []
    for number in range(len(states) - 1, -1, -1):
        state = states[number]
        final = state.after(wrap(name, lambda: last(state.conversation, policy)))  # noqa: B023  called at once
        broken = Counter(v.rule for v in original.dialect.violations(final.conversation.messages)) - allowed
        is_refused = Code.THINKING_BOUND in final.notes and number > 0
        if not broken and not is_refused and final.conversation.tokens <= limit:
            break
        blame += [Code.STAGE_UNDONE, *sorted(broken), *([Code.THINKING_BOUND] if is_refused else [])]
    else:
        final = states[0]
    status: Status | None = "fallback" if blame else "cannot_fit" if Code.OVER_BUDGET in final.notes else None
    said = State(final.conversation, final.edits, (*final.notes, *dict.fromkeys(blame)), final.counts)
    return _publish(snapshot, policy, original, said, status)


def _publish(
    snapshot: Snapshot, policy: Policy, original: Conversation, state: State, status: Status | None = None
) -> Pruned:
    messages = [message.raw for message in state.conversation.messages]
    edits = settle_ledger(state.edits, state.conversation.messages)
    reason = [*dict.fromkeys(str(note) for note in state.notes)] or ([] if edits else [Code.NOTHING_TO_DO.value])
    return Pruned(
        snapshot_id=snapshot.snapshot_id,
        conversation_id=snapshot.conversation_id,
        sequence=snapshot.sequence,
        workload=snapshot.workload,
        format=original.dialect.name,
        policy=PolicyRef(policy.name, policy.hash),
        status=status or ("pruned" if edits else "unchanged"),
        reason=reason,
        edits=edits,
        cuts=list(snapshot.cuts),
        first_changed_index=min((edit.position for edit in edits), default=None),
        tokens=Tokens(original.tokens, state.conversation.tokens, policy.count),
        counts=state.counts,
        summary=f"turns_removed={state.counts.turns_removed},rag_kept={state.counts.rag_kept}",
        messages=UNSET if snapshot.reply == "patch" else messages,
        metadata=snapshot.metadata,
    )



"""The run: one snapshot and one policy in, one result out; every doubt ends at the last valid array."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType

from contracts import Code, Counts, Edit, Policy, PolicyRef, Pruned, Refused, Snapshot, Status, Tokens, Usage
from contracts.policy import Steady
from pipeline.composition import compose
from pipeline.conversation import Conversation, read_conversation
from pipeline.decisions import Hints, Plan
from pipeline.edits import StageResult, settle_ledger
from pipeline.repair import mend_contents, repair
from pipeline.stages.collapse import collapse
from pipeline.stages.compress import compress
from pipeline.stages.prune import prune as prune_stage
from pipeline.stages.validate import validate
from pipeline.tokens import calibrate, counter

Stage = Callable[[Conversation, Policy], StageResult]
Around = Callable[[str, Callable[[], StageResult]], StageResult]

STAGES: Final[tuple[tuple[str, Stage], ...]] = (
    ("compress", compress),
    ("collapse", collapse),
    ("prune", prune_stage),
    ("validate", validate),
)


MOST_PASSES: Final = 4


class State(Struct, frozen=True):
    """What a run has come to: a conversation, how it was made, and what is to be said of it."""

    conversation: Conversation
    edits: tuple[Edit, ...] = ()
    notes: tuple[str, ...] = ()
    counts: Counts = Counts()

    def after(self, result: StageResult) -> "State":
        """This state with a stage's work added."""
        return State(
            result.conversation,
            self.edits + result.edits,
            self.notes + result.notes,
            Counts(
                self.counts.turns_removed + result.counts.turns_removed,
                self.counts.rag_kept + result.counts.rag_kept,
                self.counts.rag_dropped + result.counts.rag_dropped,
            ),
        )

    def saying(self, *notes: str) -> "State":
        """This state with more to be said of it."""
        return State(self.conversation, self.edits, (*self.notes, *notes), self.counts)


def prune(snapshot: Snapshot, policy: Policy, *, around: Around | None = None) -> Pruned:
    """The pruned array with its ledger; ``Refused`` when the snapshot cannot be read or the policy rejects it."""
    wrap = around or _plainly
    original = _read(snapshot, policy)
    if snapshot.previous_response_id:
        return _publish(snapshot, policy, original, State(original).saying(Code.SERVER_SIDE_HISTORY))
    admitted = _step(State(original), policy, "validate", _admit, wrap)
    if is_below_gate(admitted.conversation, policy):
        return _publish(snapshot, policy, original, _last_valid([admitted], policy, wrap).saying(Code.BELOW_GATE))
    final = _settle(admitted, policy, wrap)
    return _publish(snapshot, policy, original, _mend(final, policy, wrap))


def _plainly(_: str, call: Callable[[], StageResult]) -> StageResult:
    return call()


def _read(snapshot: Snapshot, policy: Policy) -> Conversation:
    count = counter(policy.count)
    conversation = read_conversation(snapshot.messages, snapshot.format, count)
    fixed = sum(count(bytes(raw).decode()) for raw in (snapshot.system, snapshot.tools) if isinstance(raw, Raw))
    return replace(
        conversation,
        fixed_tokens=fixed,
        taken_at=snapshot.taken_at,
        hints=Hints(tuple(snapshot.cuts), snapshot.cache, snapshot.usage),
    )


def _admit(conversation: Conversation, policy: Policy) -> StageResult:
    """The array as the stages may have it: repaired, trusted, or refused."""
    broken = conversation.broken_rules
    if not broken:
        return StageResult(conversation)
    if policy.validate.input == "reject":
        raise Refused(Code.INVALID_INPUT, ", ".join(sorted(broken)))
    if policy.validate.input == "trust":
        return StageResult(conversation, notes=(Code.INPUT_INVALID,))
    result = repair(conversation)
    if not result.edits or not result.conversation.messages or result.conversation.broken_rules - broken:
        return StageResult(conversation, notes=(Code.INPUT_INVALID,))
    return StageResult(result.conversation, result.edits, (Code.INPUT_REPAIRED,))


def is_below_gate(conversation: Conversation, policy: Policy) -> bool:
    """Whether the policy leaves a conversation of this size alone."""
    gate = policy.gate
    if gate is None or (gate.messages_over is None and gate.chars_over is None):
        return False
    if gate.messages_over is not None and len(conversation.messages) > gate.messages_over:
        return False
    return gate.chars_over is None or _chars(conversation, gate.chars_over) <= gate.chars_over


def _chars(conversation: Conversation, enough: int) -> int:
    """The characters of the array; where it has no more bytes than that, those are taken for them."""
    size = sum(memoryview(message.raw).nbytes for message in conversation.messages)
    return size if size <= enough else sum(len(str(message.raw, "utf-8")) for message in conversation.messages)


def _settle(admitted: State, policy: Policy, wrap: Around) -> State:
    """The end of the stages; once more where messages of stale thinking went, since those had tied their neighbours."""
    state = admitted
    for _ in range(MOST_PASSES):
        final = _last_valid(_run_stages(state, policy, wrap), policy, wrap)
        is_untied = any(
            edit.op == "drop" and edit.reason == Code.STALE_THINKING for edit in final.edits[len(state.edits) :]
        )
        if not is_untied or _is_undone(final) or isinstance(policy.prune, Steady):
            return final
        state = final
    return state


def _run_stages(admitted: State, policy: Policy, wrap: Around) -> list[State]:
    """Every state on the way; a stage that raises leaves the state as it was."""
    composed, is_capped = compose(policy)
    states = [admitted.saying(Code.MUTATION_CAP) if is_capped else admitted]
    for name, stage in STAGES[:-1]:
        states.append(_step(states[-1], composed, name, stage, wrap))
    return states


def _step(state: State, policy: Policy, name: str, stage: Stage, wrap: Around) -> State:
    try:
        return state.after(wrap(name, lambda: stage(state.conversation, policy)))
    except (Refused, MemoryError):  # what a machine lacks must not decide what a result says
        raise
    except Exception:  # the edge of the stages: in doubt, leave the snapshot alone
        return state.saying(Code.STAGE_FAILED)


def _last_valid(states: list[State], policy: Policy, wrap: Around) -> State:
    """The last state that, after the last stage, breaks no rule that was whole before and is not larger."""
    name, last = STAGES[-1]
    blame: list[str] = []
    for state in reversed(states):
        final = _step(state, policy, name, last, wrap)
        broken = final.conversation.broken_rules - states[0].conversation.broken_rules
        if broken and policy.validate.input != "trust":
            # Neighbours that an edit brought together may be accepted as one message.
            final = _step(_step(final, policy, name, _tidy, wrap), policy, name, last, wrap)
            broken = final.conversation.broken_rules - states[0].conversation.broken_rules
        is_bound = (
            Code.THINKING_BOUND in final.notes and state.conversation.messages is not states[0].conversation.messages
        )
        if not broken and not is_bound and final.conversation.tokens <= _limit(states[0], final):
            return final.saying(*dict.fromkeys(blame))
        blame += [Code.STAGE_UNDONE, *sorted(broken), *([Code.THINKING_BOUND] if is_bound else [])]
    return states[0].saying(*dict.fromkeys(blame))


def _tidy(conversation: Conversation, _: Policy) -> StageResult:
    return mend_contents(conversation)


def _mend(final: State, policy: Policy, wrap: Around) -> State:
    """What could not be repaired as it came may be once the stages have cut it down; else it stays as it is."""
    if policy.validate.input != "repair" or Code.INPUT_INVALID not in final.notes:
        return final
    name, last = STAGES[-1]
    mended = _step(_step(final, policy, name, _admit, wrap), policy, name, last, wrap)
    is_whole = not mended.conversation.broken_rules and Code.STAGE_FAILED not in mended.notes
    if not is_whole or mended.edits == final.edits:
        return final
    return State(
        mended.conversation,
        mended.edits,
        tuple(note for note in mended.notes if note != Code.INPUT_INVALID),
        mended.counts,
    )


def _limit(admitted: State, final: State) -> int:
    """How large a result may be: as what came, and more only by the repairs that are still there."""
    repaired = admitted.conversation.tokens
    if not admitted.edits:
        return repaired
    made = settle_ledger(admitted.edits, admitted.conversation.messages)
    came = repaired - sum(edit.tokens_after - edit.tokens_before for edit in made)
    kept = settle_ledger(final.edits, final.conversation.messages)
    repairs = sum(max(0, edit.tokens_after - edit.tokens_before) for edit in kept if edit.action == "repair")
    return min(repaired, came + repairs)


def _publish(snapshot: Snapshot, policy: Policy, original: Conversation, state: State) -> Pruned:
    edits = settle_ledger(state.edits, state.conversation.messages)
    if any(edit.op == "drop" and original.messages[edit.position].view.cache_marks for edit in edits):
        state = state.saying(Code.CACHE_MARK_GONE)
    reason = [str(note) for note in dict.fromkeys(state.notes)] or ([] if edits else [str(Code.NOTHING_TO_DO)])
    messages: list[Raw] | UnsetType = [message.raw for message in state.conversation.messages]
    plan = None if _is_undone(state) else state.conversation.plan
    return Pruned(
        snapshot_id=snapshot.snapshot_id,
        conversation_id=snapshot.conversation_id,
        sequence=snapshot.sequence,
        workload=snapshot.workload,
        format=original.dialect.name,
        policy=PolicyRef(policy.name, policy.hash),
        status=_status(state, edits),
        reason=reason,
        edits=edits,
        cuts=list(plan.cuts if plan else snapshot.cuts),
        first_changed_index=min((edit.position for edit in edits), default=None),
        tokens=_tokens(policy, original, state.conversation, plan),
        counts=state.counts,
        summary=f"turns_removed={state.counts.turns_removed},rag_kept={state.counts.rag_kept}",
        messages=UNSET if snapshot.reply == "patch" else messages,
        economics=plan.economics if plan and plan.economics else UNSET,
        metadata=snapshot.metadata,
    )


def _tokens(policy: Policy, original: Conversation, final: Conversation, plan: Plan | None) -> Tokens:
    """Both sizes; calibrated ones are scaled by what the provider reported, the plain estimate beside them."""
    usage = original.hints.usage
    if policy.count != "calibrated" or usage is None:
        return Tokens(original.tokens, final.tokens, policy.count)
    scale = plan.scale if plan else 1.0 if usage.pruned else calibrate(usage.input_tokens, _covered(original, usage))
    return Tokens(round(original.tokens * scale), round(final.tokens * scale), policy.count, original.tokens)


def _covered(original: Conversation, usage: Usage) -> int:
    return original.fixed_tokens + sum(message.tokens for message in original.messages[: usage.messages])


def _is_undone(state: State) -> bool:
    return Code.STAGE_UNDONE in state.notes or Code.STAGE_FAILED in state.notes


def _status(state: State, edits: list[Edit]) -> Status:
    if _is_undone(state):
        return "fallback"
    if Code.OVER_BUDGET in state.notes:
        return "cannot_fit"
    return "pruned" if edits else "unchanged"

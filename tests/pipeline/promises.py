"""The promises of the pipeline as checks: each looks at one run and says what it breaks, or nothing."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct

from contracts import Code, Policy, Pruned, Refused, Snapshot, encode, load_policy
from pipeline import apply_edits, count_after, prune
from pipeline.conversation import Conversation, read_conversation
from pipeline.tokens import counter
from pipeline.units import frontier, pair_calls
from pipeline.view import Message

Prune = Callable[[Snapshot, Policy], Pruned]


class Breach(Struct, frozen=True):
    """A broken promise, and what shows it without quoting a conversation."""

    promise: str
    detail: str


@dataclass(frozen=True)
class Run:
    """One snapshot, the policy, and what came of them; both arrays read anew."""

    snapshot: Snapshot
    policy: Policy
    result: Pruned
    prune: Prune = prune

    @cached_property
    def original(self) -> list[bytes]:
        """The items as they came."""
        return [bytes(item) for item in self.snapshot.messages]

    @cached_property
    def published(self) -> list[bytes]:
        """The items as they leave."""
        assert isinstance(self.result.messages, list)
        return [bytes(item) for item in self.result.messages]

    @cached_property
    def before(self) -> Conversation:
        """The array that came."""
        return self.read(self.original)

    @cached_property
    def after(self) -> Conversation:
        """The array that leaves."""
        return self.read(self.published)

    @cached_property
    def again(self) -> Pruned:
        """The result pruned once more, without what was reported from outside."""
        return self.prune(resent(self.snapshot, self.result), self.policy)

    def read(self, items: Sequence[bytes]) -> Conversation:
        """Other items as a conversation of this format, read from nothing but their bytes."""
        return read_conversation([Raw(item) for item in items], self.result.format, counter("chars/4"))

    def size(self, items: Sequence[bytes]) -> int:
        """What a run that changes nothing counts for other items."""
        policy = load_policy({"count": self.policy.count, "validate": {"input": "trust"}})
        snapshot = msgspec.structs.replace(self.snapshot, messages=[Raw(item) for item in items], reply="array")
        return self.prune(msgspec.structs.replace(snapshot, format=self.result.format), policy).tokens.before


def resent(snapshot: Snapshot, result: Pruned) -> Snapshot:
    """The result as the next snapshot of its conversation."""
    assert isinstance(result.messages, list)
    items = [Raw(bytes(item)) for item in result.messages]
    return msgspec.structs.replace(
        snapshot, messages=items, format=result.format, usage=None, cache=None, cuts=[], reply="array"
    )


def broken_rules(conversation: Conversation) -> Counter[str]:
    """How often each of the provider's rules is broken."""
    found = conversation.dialect.violations(conversation.messages, conversation.pairs)
    return Counter(violation.rule for violation in found)


def no_rule_is_broken_more_often(run: Run) -> Iterator[str]:
    """Promise 1: valid in, valid out; what was invalid is never made worse."""
    for rule, count in (broken_rules(run.after) - broken_rules(run.before)).items():
        yield f"{rule} broken {count} times more"


def no_stage_fails(run: Run) -> Iterator[str]:
    """Promise 8: a stage that raises is caught by the run, and still a fault."""
    if Code.STAGE_FAILED in run.result.reason:
        yield "a stage raised"


def untouched_messages_keep_their_bytes(run: Run) -> Iterator[str]:
    """Promise 2: what no edit names leaves byte for byte, in order."""
    named = {edit.position for edit in run.result.edits if edit.op != "insert"}
    published = iter(run.published)
    for position, item in enumerate(run.original):
        if position not in named and item not in published:
            yield f"message {position} is changed, gone or out of order, and no edit says so"
            return


def the_prefix_is_as_published(run: Run) -> Iterator[str]:
    """Promise 2: ``first_changed_index`` is where the bytes begin to differ."""
    first = run.result.first_changed_index
    same = next((i for i, (old, new) in enumerate(zip(run.original, run.published, strict=False)) if old != new), None)
    if first is None and run.original != run.published:
        yield "the array differs and first_changed_index is none"
    if first is not None and same is not None and first > same:
        yield f"first_changed_index is {first}, the first difference at {same}"


def the_same_run_gives_the_same_bytes(run: Run) -> Iterator[str]:
    """Promise 3: nothing but snapshot and policy decides."""
    if encode(run.prune(run.snapshot, run.policy)) != encode(run.result):
        yield "two runs differ"


def pruning_again_changes_nothing(run: Run) -> Iterator[str]:
    """Promise 3: the result is a fixed point; pinned positions name places of one array only."""
    if run.policy.keep.positions:
        return
    for edit in run.again.edits[:1]:
        yield f"{edit.stage} {edit.action} {edit.op} at {edit.position} of {len(run.published)}: {edit.reason}"
    assert isinstance(run.again.messages, list)
    if [bytes(item) for item in run.again.messages] != run.published:
        yield "the bytes differ"


def edits_rebuild_the_result(run: Run) -> Iterator[str]:
    """Promise 4: the ledger applied to what came gives what leaves."""
    if [bytes(item) for item in apply_edits(run.snapshot.messages, run.result.edits)] != run.published:
        yield "apply_edits gives other bytes"
    if count_after(len(run.original), run.result.edits) != len(run.published):
        yield "count_after is wrong"


def edits_name_what_they_changed(run: Run) -> Iterator[str]:
    """Promise 4: each edit carries the hash of the item it changed, and an item where it puts one."""
    for number, edit in enumerate(run.result.edits):
        if (edit.op == "drop") == isinstance(edit.item, Raw):
            yield f"edit {number}: {edit.op} with{'' if edit.op == 'drop' else 'out'} an item"
        if edit.op == "insert":
            is_right = 0 <= edit.position <= len(run.original)
        else:
            is_right = hashlib.sha256(run.original[edit.position]).hexdigest() == edit.sha256
        if not is_right:
            yield f"edit {number}: wrong hash or position"


def edits_add_up(run: Run) -> Iterator[str]:
    """Promise 4: what the edits say they saved is what was saved."""
    if run.policy.count == "calibrated":
        return
    saved = sum(edit.tokens_before - edit.tokens_after for edit in run.result.edits)
    if saved != run.result.tokens.before - run.result.tokens.after:
        yield f"edits say {saved}, the totals {run.result.tokens.before - run.result.tokens.after}"


def the_result_is_never_larger(run: Run) -> Iterator[str]:
    """Promise 5: tokens after exceed tokens before by no more than what the listed repairs added."""
    tokens = run.result.tokens
    added = sum(max(0, edit.tokens_after - edit.tokens_before) for edit in run.result.edits if edit.action == "repair")
    if tokens.after > tokens.before + added:
        yield f"{tokens.before} before, {added} added by repairs, {tokens.after} after"


def reported_tokens_are_a_fresh_count(run: Run) -> Iterator[str]:
    """Promise 5: both figures are what counting the arrays alone gives."""
    tokens, before, after = run.result.tokens, run.size(run.original), run.size(run.published)
    if (tokens.before, tokens.after) != (before, after):
        yield f"reported {tokens.before} and {tokens.after}, counted {before} and {after}"


def nothing_is_emptied(run: Run) -> Iterator[str]:
    """The last message stays, and what an edit leaves of a message still says something."""
    if run.original and not run.published:
        yield "the array is empty"
    last = {edit.position: edit for edit in run.result.edits if edit.op != "insert"}
    # A repair may have put a neighbour's empty parts into a message: that is what the stages found.
    mended = {
        edit.position: edit.item
        for edit in run.result.edits
        if edit.action == "repair" and edit.op == "replace" and isinstance(edit.item, Raw)
    }
    for position, edit in last.items():
        if edit.action == "repair":
            continue
        if edit.op == "drop" and position == len(run.original) - 1:
            yield "the last message is gone"
        found = run.before.read(mended.get(position, run.snapshot.messages[position]), position)
        if isinstance(edit.item, Raw) and _says_less(found, run.before.read(edit.item, position)):
            yield f"message {position} is emptied by {edit.stage}"


def _says_less(old: Message, new: Message) -> bool:
    blank_results = sum(not part.text and not part.size for part in old.of_kind("result"))
    is_emptied = any(part.text or part.kind != "text" for part in old.parts) and not new.parts
    return is_emptied or sum(not part.text and not part.size for part in new.of_kind("result")) > blank_results


def the_live_step_is_untouched(run: Run) -> Iterator[str]:
    """A trailing call that still waits, and all behind it, is changed by nothing but a repair."""
    start = live_start(run.before)
    for edit in run.result.edits:
        is_before = edit.position < start or (edit.op == "insert" and edit.position == start)
        if start < len(run.original) and edit.action != "repair" and not is_before:
            yield f"{edit.stage} {edit.op} at {edit.position}, a call waits from {start} on"


def live_start(conversation: Conversation) -> int:
    """The first message whose call still waits in the step at the end; the array's length if none does."""
    messages = conversation.messages
    edge, ends = frontier(messages), conversation.dialect.answer_ends(messages)
    open_calls = [call.index for call in pair_calls(messages).calls if call.result is None and call.index >= edge]
    return min((index for index in open_calls if ends[index] == len(messages)), default=len(messages))


def a_patch_is_the_same_result(run: Run) -> Iterator[str]:
    """Asked for a patch, the run leaves the messages out and gives the same edits."""
    patch = run.prune(msgspec.structs.replace(run.snapshot, reply="patch"), run.policy)
    if patch.messages is not UNSET:
        yield "the patch carries messages"
    if encode(patch) != encode(msgspec.structs.replace(run.result, messages=UNSET)):
        yield "the patch differs"


Check = Callable[[Run], Iterator[str]]

CHECKS: Final[tuple[Check, ...]] = (
    no_rule_is_broken_more_often,
    no_stage_fails,
    untouched_messages_keep_their_bytes,
    the_prefix_is_as_published,
    the_same_run_gives_the_same_bytes,
    pruning_again_changes_nothing,
    edits_rebuild_the_result,
    edits_name_what_they_changed,
    edits_add_up,
    the_result_is_never_larger,
    reported_tokens_are_a_fresh_count,
    nothing_is_emptied,
    the_live_step_is_untouched,
    a_patch_is_the_same_result,
)


def check_run(run: Run, checks: Sequence[Check] = CHECKS) -> list[Breach]:
    """Every promise that a run breaks."""
    return [Breach(check.__name__, detail) for check in checks for detail in check(run)]


def check_prune(snapshot: Snapshot, policy: Policy, prune: Prune = prune) -> tuple[Pruned | None, list[Breach]]:
    """The result of a run, if there is one, and every promise it breaks; a refusal must be the policy's wish."""
    try:
        result = prune(snapshot, policy)
        return result, check_run(Run(snapshot, policy, result, prune))
    except Refused as error:
        is_wanted = error.code == Code.INVALID_INPUT and policy.validate.input == "reject"
        return None, [] if is_wanted else [Breach("never_refuses_without_need", str(error))]
    except Exception as error:
        return None, [Breach("raises_nothing_else", _where(error))]


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace is not None else "?"
    return f"{type(error).__name__} in {place}"

"""Every check of the promises goes red for a pipeline that breaks it: for each, a mutant that it must catch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

import pipeline.run
from contracts import Code, Edit, Pruned, Snapshot, Tokens, load_policy, raw
from contracts.policy import Compress
from pipeline.conversation import Conversation, read_conversation
from pipeline.edits import Editor, settle_ledger
from pipeline.shorten import SHAPES
from pipeline.units import Pairs, Unit
from pipeline.view import Message
from tests.pipeline.arrays import assistant, calls, raws, results, user
from tests.pipeline.promises import CHECKS, check_prune

LONG = "a line that a tool printed\n" * 40
TALK = [
    user("the task"),
    calls("a"),
    results("a", text=LONG),
    assistant("I looked at it."),
    calls("b"),
    results("b", text=LONG),
    user("go on"),
]
WAITING = [*TALK, calls("c", "d"), results("c", text=LONG)]

CAP: dict[str, Any] = {"compress": {"max_tool_result_tokens": 50}}
COLLAPSE: dict[str, Any] = {"collapse": {"after_turns": 0, "into": "assistant"}}
STUB: dict[str, Any] = {"collapse": {"after_turns": 0, "into": "stub"}}
WINDOW: dict[str, Any] = {"prune": {"strategy": "sliding_window", "max_turns": 2}}

Patch = pytest.MonkeyPatch


def split_pairs(patch: Patch) -> None:
    """Calls and results are removed one by one."""

    def alone(messages: Sequence[Message], pairs: Pairs) -> tuple[Unit, ...]:
        return tuple(Unit(i, i + 1) for i in range(len(messages)))

    patch.setattr("pipeline.conversation.build_units", alone)


def trust_every_result(patch: Patch) -> None:
    """No stage's work is ever taken back."""
    patch.setattr("pipeline.run._last_valid", lambda states, *_: states[-1])


def split_pairs_unseen(patch: Patch) -> None:
    split_pairs(patch)
    trust_every_result(patch)


def write_longer_results(patch: Patch) -> None:
    """Every result gets longer, by an edit that need not shrink."""

    def grow(conversation: Conversation, config: Compress, editor: Editor) -> None:
        for index, message in enumerate(conversation.messages):
            if message.of_kind("result"):
                item = raw(results("a" if index == 2 else "b", text=LONG * 2))
                editor.replace(index, item, "shorten", Code.OVER_RESULT_CAP, must_shrink=False)

    patch.setattr("pipeline.stages.compress.cap_results", grow)


def write_longer_results_unseen(patch: Patch) -> None:
    write_longer_results(patch)
    trust_every_result(patch)


def spell_anew(patch: Patch) -> None:
    """Messages are written from their parsed values instead of as they came."""

    def reread(items: Sequence[Raw], *rest: Any) -> Conversation:
        return read_conversation([raw(msgspec.json.decode(item)) for item in items], *rest)

    patch.setattr("pipeline.run.read_conversation", reread)


def publish_other(change: Callable[[Snapshot, Pruned], Pruned]) -> Callable[[Patch], None]:
    """A result that says something else than what was done."""

    def mutate(patch: Patch) -> None:
        publish = pipeline.run._publish
        patch.setattr("pipeline.run._publish", lambda snapshot, *rest: change(snapshot, publish(snapshot, *rest)))

    return mutate


def number_every_notice(patch: Patch) -> None:
    """A text that depends on how often it was written."""
    numbers = count()
    patch.setattr("pipeline.stages.collapse.collapsed_text", lambda *_: f"[Tool: {next(numbers)}]")


def halve_again_and_again(patch: Patch) -> None:
    """A cap that does not know its own mark."""
    patch.setitem(SHAPES, "head", lambda text, _: text[: len(text) // 2])


def lose_an_edit(patch: Patch) -> None:
    patch.setattr("pipeline.run.settle_ledger", lambda edits, messages: settle_ledger(edits, messages)[:-1])


def overstate_savings(patch: Patch) -> None:
    def settled(edits: Sequence[Edit], messages: Sequence[Message]) -> list[Edit]:
        return [replace(edit, tokens_after=0) for edit in settle_ledger(edits, messages)]

    patch.setattr("pipeline.run.settle_ledger", settled)


def edit_the_live_step(patch: Patch) -> None:
    patch.setattr(Conversation, "live", property(lambda conversation: len(conversation.messages)))


def raise_in_a_stage(patch: Patch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError

    patch.setattr("pipeline.stages.compress.cap_results", fail)


def no_hash(_: Snapshot, result: Pruned) -> Pruned:
    return replace(result, edits=[replace(edit, sha256="0" * 64) for edit in result.edits])


def fewer_tokens(_: Snapshot, result: Pruned) -> Pruned:
    return replace(result, tokens=Tokens(result.tokens.before, result.tokens.after - 1, result.tokens.method))


def late_change(_: Snapshot, result: Pruned) -> Pruned:
    return replace(result, first_changed_index=len(TALK))


def whole_patch(snapshot: Snapshot, result: Pruned) -> Pruned:
    return replace(result, messages=list(snapshot.messages)) if snapshot.reply == "patch" else result


@dataclass(frozen=True)
class Mutant:
    """A broken pipeline, where it shows, and the check that must see it."""

    promise: int | None
    check: str
    mutate: Callable[[Patch], None]
    policy: dict[str, Any]
    messages: Sequence[dict[str, Any]] = tuple(TALK)


MUTANTS = (
    Mutant(1, "no_rule_is_broken_more_often", split_pairs_unseen, WINDOW),
    Mutant(2, "untouched_messages_keep_their_bytes", spell_anew, CAP),
    Mutant(2, "the_prefix_is_as_published", publish_other(late_change), CAP),
    Mutant(3, "the_same_run_gives_the_same_bytes", number_every_notice, COLLAPSE),
    Mutant(3, "pruning_again_changes_nothing", halve_again_and_again, CAP),
    Mutant(4, "edits_rebuild_the_result", lose_an_edit, CAP),
    Mutant(4, "edits_name_what_they_changed", publish_other(no_hash), CAP),
    Mutant(4, "edits_add_up", overstate_savings, CAP),
    Mutant(5, "the_result_is_never_larger", write_longer_results_unseen, CAP),
    Mutant(5, "reported_tokens_are_a_fresh_count", publish_other(fewer_tokens), CAP),
    Mutant(None, "nothing_is_emptied", lambda patch: patch.setattr("pipeline.stages.collapse.CLEARED", ""), STUB),
    Mutant(None, "the_live_step_is_untouched", edit_the_live_step, CAP, tuple(WAITING)),
    Mutant(None, "no_stage_fails", raise_in_a_stage, CAP),
    Mutant(None, "a_patch_is_the_same_result", publish_other(whole_patch), CAP),
)
ids = [mutant.check for mutant in MUTANTS]


def snapshot_of(messages: Sequence[dict[str, Any]]) -> Snapshot:
    """The messages as a snapshot, the last one spelt as no encoder of ours would."""
    *items, last = raws(list(messages))
    return Snapshot("c", [*items, Raw(bytes(last).replace(b":", b" : "))], format="anthropic")


def red_checks(mutant: Mutant) -> set[str]:
    return {breach.promise for breach in check_prune(snapshot_of(mutant.messages), load_policy(mutant.policy))[1]}


@pytest.mark.parametrize("mutant", MUTANTS, ids=ids)
def test_the_real_pipeline_breaks_nothing_here(mutant: Mutant) -> None:
    assert red_checks(mutant) == set()


@pytest.mark.parametrize("mutant", MUTANTS, ids=ids)
def test_a_check_sees_the_mutant_made_for_it(mutant: Mutant, monkeypatch: Patch) -> None:
    mutant.mutate(monkeypatch)

    assert mutant.check in red_checks(mutant)


def test_every_check_and_every_promise_has_a_mutant() -> None:
    assert {mutant.check for mutant in MUTANTS} == {check.__name__ for check in CHECKS}
    assert {mutant.promise for mutant in MUTANTS} >= {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("mutate", "policy"), [(split_pairs, WINDOW), (write_longer_results, CAP)], ids=["split pairs", "longer results"]
)
def test_the_run_takes_back_what_would_break_a_promise(
    mutate: Callable[[Patch], None], policy: dict[str, Any], monkeypatch: Patch
) -> None:
    mutate(monkeypatch)
    result, breaches = check_prune(snapshot_of(TALK), load_policy(policy))

    assert breaches == []
    assert result is not None
    assert result.status == "fallback"

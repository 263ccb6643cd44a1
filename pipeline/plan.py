"""The plan: one scan forward that cuts only where the size forces it, so that what follows never moves a decision."""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Raw, Struct

from contracts import Code, Cut, Economics, Policy, raw
from contracts.policy import Budget, Steady
from pipeline.conversation import Conversation
from pipeline.decisions import Hints, Plan, Rewrite
from pipeline.economics import pays, weigh
from pipeline.evidence import Evidence, condense, fit_names, rank_names
from pipeline.keep import first_prompt, is_pinned, is_turn
from pipeline.notices import (
    CLEARED,
    RESUMED,
    STUBS,
    is_condensed,
    notice_text,
    pruned_steps,
    pruned_tools,
    steps_text,
    summarized_turns,
)
from pipeline.splice import splice
from pipeline.tokens import calibrate, count_part
from pipeline.units import Call, is_prompt
from pipeline.view import Message, Part

SHORTEST_RESULT: Final = 400  # characters; condensing less gains nothing worth a reader's doubt
CHARS_PER_TOKEN: Final = 3.4  # of a list of names
CHARS_PER_NAME: Final = 6
ANCHOR_DIGITS: Final = 12
CHANGEABLE: Final = ("", "error")


class Marks(Struct, frozen=True):
    """Sizes in estimated tokens: never above the limit, from high on a cut may pay, down to low."""

    limit: float
    high: float
    low: float
    cold: float  # from here on a cut is worth it when the cache is lost anyway

    @classmethod
    def of(cls, budget: Budget, scale: float) -> "Marks":
        """The marks of a budget when so many real tokens stand for one estimated."""
        limit = budget.max_tokens / scale
        low = limit * min(budget.low_water, budget.high_water)
        return cls(limit, limit * budget.high_water, low, (low + limit * budget.high_water) / 2)


def make_plan(conversation: Conversation, policy: Policy, config: Steady) -> Plan:
    """What `steady` does with a conversation: nothing while it is small, else what the scan decides."""
    budget, hints = policy.budget or Budget(), conversation.hints
    usage = hints.usage if policy.count == "calibrated" else None
    is_cold = hints.cache is not None and hints.cache.age_s >= hints.cache.ttl_s
    if not hints.cuts and usage is None:
        marks = Marks.of(budget, 1.0)
        if conversation.tokens <= (marks.cold if is_cold else marks.high):
            return Plan(economics=Economics("below_high_water"))
    return Scan(conversation, policy, config, budget, Hints(hints.cuts, hints.cache if is_cold else None, usage)).run()


class Scan:
    """One pass over a conversation; every message is taken in, rewritten and dropped at most once."""

    def __init__(
        self, conversation: Conversation, policy: Policy, config: Steady, budget: Budget, hints: Hints
    ) -> None:
        self.conversation, self.policy, self.config, self.budget, self.hints = (
            conversation,
            policy,
            config,
            budget,
            hints,
        )
        self.messages, self.units = conversation.messages, conversation.units
        self.scale = 1.0
        self.marks = Marks.of(budget, 1.0)
        self.live = conversation.fixed_tokens  # without the notice
        self.sizes = [0] * len(self.units)
        self.ends = [unit.end for unit in self.units]
        self.ends_at = [self._at(unit.end) for unit in self.units]
        self.unit_of = [number for number, unit in enumerate(self.units) for _ in range(unit.start, unit.end)]
        self.kept = list(self._kept())
        self.window = Window(conversation, policy, config)
        self.current: dict[int, Message] = {}
        self.rewrites: dict[int, Rewrite] = {}
        self.dropped: set[int] = set()  # units
        self.freed: set[int] = set()
        self.cuts: list[Cut] = []
        self.to_condense = self.to_drop = self.to_free = 0  # units before these were dealt with
        self.deferred: list[int] = []  # last prompts, to be dropped when they are no longer
        self.notices: list[int] = []  # earlier notices, to be merged into the next
        self.compaction = -1
        self.share = config.evidence_share
        self.evidence = Evidence()
        self.heard = 0
        self.anchor = Anchor(conversation.originals)
        self.stale = Stale(conversation, config)
        self.thinking = Thinking(conversation, policy)
        self.digest = Digest(conversation)
        self.changes = 0
        self.first_edit = len(self.messages)  # of the last cut
        self.account: tuple[int, str, int, int] = (0, "", 0, 0)  # of the last cut: index, reason, before, after
        self.is_published = False  # whether the last cut was echoed
        self.thinking_until: int | None = None

    def run(self) -> Plan:
        """Scan to the end."""
        echoed = list(self._honoured())
        usage = self.hints.usage
        covered = min(usage.messages, len(self.messages) - 1) if usage is not None else -1
        settled = echoed[-1].at if echoed else 0
        if usage is not None and (echoed or not usage.pruned):
            settled = max(settled, covered + 1)
        for index, message in enumerate(self.messages, 1):
            self._take(index, message)
            while echoed and self._at(index) >= echoed[0].at:
                self._replay(index, echoed.pop(0))
            is_last = index == len(self.messages)
            if (self._at(index) >= settled and not message.is_added) or is_last:
                self._decide(index, is_last)
            if index == covered and usage is not None:
                self.scale = calibrate(usage.input_tokens, self.total)
                self.marks = Marks.of(self.budget, max(1.0, self.scale))
        return self._plan()

    @property
    def total(self) -> int:
        """The size of the live context."""
        return self.live + self.digest.tokens

    def _honoured(self) -> Iterator[Cut]:
        """The echoed cuts that were made of this array."""
        originals = self.conversation.originals
        anchor = Anchor(originals)
        for cut in sorted(self.hints.cuts, key=lambda cut: cut.at):
            if 0 < cut.at <= len(originals) and cut.anchor in ("", anchor.at(cut.at)):
                yield cut

    def _at(self, index: int) -> int:
        """How many messages of the array as it came stand before an index."""
        if not index:
            return 0
        message = self.messages[index - 1]
        return message.position + (not message.is_added)

    def _kept(self) -> Iterator[bool]:
        """Which units stay for their own sake."""
        keep, first = self.policy.keep, {first_prompt(self.messages), self._front()}
        for unit in self.units:
            is_first = any(index in first for index in range(unit.start, unit.end))
            is_named = any(call.part.name in keep.tools for call in unit.calls)
            messages = self.messages[unit.start : unit.end]
            yield is_first or is_named or any(is_pinned(message, keep) for message in messages)

    def _front(self) -> int | None:
        """The first message, where the provider insists on who speaks first."""
        if not self.conversation.dialect.needs_user_first:
            return None
        return next((i for i, message in enumerate(self.messages) if message.role not in ("system", "other")), None)

    def _take(self, index: int, message: Message) -> None:
        number = self.unit_of[index - 1]
        self.live += message.tokens
        self.sizes[number] += message.tokens
        self.window.take(index, message)
        self.thinking.take(index, message)
        if "compaction" in message.view.marks:
            self.compaction = number  # the one that counts; what stands before it goes for free

    def _decide(self, index: int, is_last: bool) -> None:
        reason = self._reason(is_last)
        if reason is None:
            return
        soft, hard = self._reach(index)
        # Where all that a cut may touch is gone already, it is not tried again with every message.
        if self.to_drop < (hard if reason is Code.HARD_LIMIT else soft):
            self._cut(index, reason, self.marks.low, soft, hard)

    def _reason(self, is_last: bool) -> Code | None:
        marks, total = self.marks, self.total
        if total > marks.limit:
            return Code.HARD_LIMIT
        if is_last and self.hints.cache is not None and total > marks.cold:
            return Code.COLD_CACHE
        if total > marks.high and pays(self.policy.economics, marks.low, total - marks.low):
            return Code.HIGH_WATER
        return None

    def _reach(self, index: int) -> tuple[int, int]:
        """How many units a cut may touch while it keeps the last rounds, and how many when the limit is at stake."""
        hard = self.window.hard_floor(index)
        soft = min(self.window.soft_floor(), hard)
        return bisect_right(self.ends, soft), bisect_right(self.ends, hard)

    def _cut(self, index: int, reason: str, target: float, soft: int, hard: int) -> None:
        before, changes = self.total, self.changes
        self.share = self.config.evidence_share
        self._begin(index)
        self._free(min(max(self.compaction, 0), hard))
        self._clear(soft)
        room = int(min(self.budget.max_tokens, self.marks.limit) * self.config.notice_share)
        self._thin(soft, target, room)
        if self.live + self._notice_room(room) > self.marks.limit:
            self._thin(hard, target, room)
        room = min(self._notice_room(room), max(0, int(self.marks.limit) - self.live))
        self._settle_notice(room)
        if self.changes == changes:
            return
        at = self._at(index)
        self.cuts.append(
            Cut(
                at,
                reason,
                before,
                self.total,
                freed=self._place(self.to_free),
                cleared=self._place(soft),
                condensed=self._place(self.to_condense),
                dropped=self._place(self.to_drop),
                notice=room,
                share=self.share,
                anchor=self.anchor.at(at),
            )
        )
        self._close(index, reason, before, is_published=False)

    def _replay(self, index: int, cut: Cut) -> None:
        """Make a cut as it was made before, whatever has become known since."""
        if not cut.anchor:
            soft, hard = self._reach(index)
            self._cut(index, cut.reason, cut.tokens_after or self.marks.low, soft, hard)
            return
        before = self.total
        self.share = cut.share
        self._begin(index)
        self._free(self._reached(cut.freed))
        self._clear(self._reached(cut.cleared))
        self._drop(self._reached(cut.dropped), -1, 0, 0)
        self._condense(self._reached(cut.condensed), -1)
        self._settle_notice(cut.notice)
        self.cuts.append(cut)
        self._close(index, cut.reason, before, is_published=True)

    def _begin(self, index: int) -> None:
        while self.heard < index:
            self.evidence.hear(self.heard, self.messages[self.heard])
            self.heard += 1
        self.stale.look(index, self.unit_of)
        self.first_edit = len(self.messages)
        self._strip(self.thinking.begin())

    def _close(self, index: int, reason: str, before: int, *, is_published: bool) -> None:
        self.account = (index, reason, before, self.total)
        self.is_published = is_published
        self.thinking_until = self._at(self.thinking.live_turn)

    def _place(self, units: int) -> int:
        return self.ends_at[units - 1] if units else 0

    def _reached(self, place: int) -> int:
        return bisect_right(self.ends_at, place)

    def _free(self, until: int) -> None:
        """Drop what the provider ignores since it stands before its own compaction item."""
        for number in range(self.to_free, until):
            if not self.kept[number] and number not in self.dropped:
                self._remove(number)
                self.freed.add(number)
        self.to_free = max(self.to_free, until)

    def _clear(self, until: int) -> None:
        """Clear results that a later call made worthless."""
        for number, call, reason in self.stale.take(until):
            if number in self.dropped or self.kept[number]:
                continue
            message = self._message(call.result_index)
            part = _result_at(message, call)
            if part is not None and part.state in CHANGEABLE and _length(part) > len(CLEARED):
                changes = self.conversation.dialect.put_result(part, CLEARED)
                self._rewrite(call.result_index, changes, "mask", reason, call.part.name)

    def _thin(self, until: int, target: float, room: int) -> None:
        """Meet the target: what would not fit even when all is condensed is dropped before any text is read."""
        spare = sum(self._spare(number) for number in range(self.to_condense, until))
        self._drop(until, target, room, spare)
        self._condense(until, target)

    def _spare(self, number: int) -> float:
        """About how many tokens condensing a unit would save."""
        if number in self.dropped or self.kept[number]:
            return 0.0
        return sum(self._spare_in(self._message(index)) for index in range(*self._span(number)))

    def _spare_in(self, message: Message) -> float:
        results = [part for part in message.parts if part.kind == "result" and self._is_condensable(part)]
        if not results or message.is_added:
            return 0.0
        size = sum(map(_length, message.parts))
        return message.tokens * sum(map(_length, results)) * (1.0 - self.share) / size

    def _condense(self, until: int, target: float) -> None:
        """Condense the oldest results until the target is met."""
        while self.to_condense < until and self.total > target:
            if self.to_condense not in self.dropped and not self.kept[self.to_condense]:
                self._condense_unit(self.to_condense)
            self.to_condense += 1

    def _condense_unit(self, number: int) -> None:
        for index in range(self.units[number].start, self.units[number].end):
            message = self._message(index)
            changes = []
            tools = []
            for part in message.parts:
                if part.kind == "result" and (text := self._condensed(part)):
                    changes += self.conversation.dialect.put_result(part, text)
                    tools.append(self.conversation.tool_name(index, part))
            if changes:
                self._rewrite(index, changes, "shorten", Code.OLD_RESULT, ", ".join(dict.fromkeys(tools)))

    def _is_condensable(self, part: Part) -> bool:
        is_open = part.state in CHANGEABLE and _length(part) > SHORTEST_RESULT
        return is_open and not is_condensed(part.text) and part.text not in STUBS

    def _condensed(self, part: Part) -> str:
        if not self._is_condensable(part):
            return ""
        text = part.text
        if len(text) <= SHORTEST_RESULT:  # the rest of it is media
            return f"{text}\n{CLEARED}".strip()
        return condense(text, int(len(text) * self.share), self.evidence.worth)

    def _drop(self, until: int, target: float, room: int, spare: float) -> None:
        """Drop the oldest units until the target is met with the notice for them, and ``spare`` tokens condensed."""
        while self.to_drop < until and self.live - spare + self._notice_room(room) > target:
            number = self.to_drop
            self.to_drop += 1
            spare -= self._spare(number) if number >= self.to_condense else 0.0
            unit = self.units[number]
            if number in self.dropped or self.kept[number] or number == self.compaction:
                continue
            text = notice_text(self.messages[unit.start]) if unit.size == 1 else ""
            if text:
                if text != RESUMED:
                    self.notices.append(number)
            elif unit.start <= self.window.last_prompt < unit.end:
                self.deferred.append(number)
            else:
                self._drop_unit(number)

    def _drop_unit(self, number: int) -> None:
        waiting = [old for old in self.deferred if self.window.last_prompt not in range(*self._span(old))]
        self.deferred = [old for old in self.deferred if old not in waiting]
        for old in self.notices:
            self.digest.merge(notice_text(self.messages[self.units[old].start]), self.sizes[old])
            self._remove(old)
        self.notices = []
        for gone in (*waiting, number):
            unit = self.units[gone]
            turns = sum(is_turn(message) for message in self.messages[unit.start : unit.end])
            self.digest.add(turns, (call.part.name for call in unit.calls), self.sizes[gone])
            for index in range(unit.start, unit.end):
                self.digest.learn(self.evidence.forget(index))
            self._remove(gone)

    def _span(self, number: int) -> tuple[int, int]:
        return self.units[number].start, self.units[number].end

    def _remove(self, number: int) -> None:
        self.dropped.add(number)
        self.live -= self.sizes[number]
        self.sizes[number] = 0
        for index in range(*self._span(number)):
            self.evidence.forget(index)
        self._edited(self.units[number].start)

    def _notice_room(self, room: int) -> int:
        return self.digest.room(room)

    def _settle_notice(self, room: int) -> None:
        if self.digest.write(room, self.evidence):
            self.changes += 1

    def _message(self, index: int) -> Message:
        return self.current.get(index, self.messages[index])

    def _rewrite(self, index: int, changes: list[Any], action: Any, reason: Code, tool: str) -> None:
        old = self._message(index)
        if not changes or old.is_added:
            return
        new = self.conversation.read(splice(old.raw, changes), old.position)
        if new.tokens >= old.tokens:
            return
        self.current[index] = new
        self.rewrites[old.position] = Rewrite(new.raw, action, reason, tool)
        self.evidence.rewrite(index, new)
        self._shrink(index, old.tokens - new.tokens)
        self._edited(index)

    def _shrink(self, index: int, tokens: int) -> None:
        self.live -= tokens
        self.sizes[self.unit_of[index]] -= tokens

    def _edited(self, index: int) -> None:
        self.changes += 1
        self.first_edit = min(self.first_edit, index)
        self._strip(self.thinking.edited(index))

    def _strip(self, thoughts: Iterable[tuple[int, int]]) -> None:
        for index, tokens in thoughts:
            self.changes += 1
            self.first_edit = min(self.first_edit, index)
            if self.unit_of[index] not in self.dropped:
                self._shrink(index, tokens)

    def _plan(self) -> Plan:
        return Plan(
            self.rewrites,
            frozenset(self._positions(self.freed)),
            frozenset(self._positions(self.dropped - self.freed)),
            self.digest.text,
            tuple(self.cuts),
            self._economics(),
            self.scale,
            self.thinking_until if self.is_published else None,
        )

    def _positions(self, numbers: Iterable[int]) -> Iterator[int]:
        for number in numbers:
            for message in self.messages[self.units[number].start : self.units[number].end]:
                if not message.is_added:
                    yield message.position

    def _economics(self) -> Economics:
        index, reason, before, after = self.account
        newest = self.window.newest_call
        if not self.cuts or self.is_published or index <= newest:
            is_high = self.total > self.marks.high
            return Economics("not_worth_it" if is_high else "below_high_water")
        front = self.conversation.fixed_tokens + sum(self.sizes[: self.unit_of[min(self.first_edit, index - 1)]])
        fresh = sum(message.tokens for message in self.messages[newest:index])
        cached = 0 if reason == Code.COLD_CACHE else max(0, before - front - fresh)
        return weigh(self.policy.economics, str(reason), max(0, after - front), before - after, cached)


class Window:
    """Where the last rounds begin and the live step starts, as far as the scan has come."""

    def __init__(self, conversation: Conversation, policy: Policy, config: Steady) -> None:
        self._turn, self._last, self._rounds = policy.turn, policy.keep.last, config.keep_rounds
        self._unit_starts = {unit.start for unit in conversation.units}
        calls = sorted((call for unit in conversation.units for call in unit.calls), key=lambda call: call.index)
        self._calls = [call for call in calls if call.part.state not in ("server", "pending")]
        self._next_call = 0
        self._turns: list[int] = []
        self._rounds_at: list[int] = []
        self._open_from = [0]  # for each index, where the run of waiting calls before it begins
        self._results_from = 0
        self._is_speaking = False
        self.last_prompt = -1

    @property
    def newest_call(self) -> int:
        """Where the model last began to speak."""
        return self._rounds_at[-1] if self._rounds_at else 0

    def take(self, index: int, message: Message) -> None:
        """Take in the next message."""
        here = index - 1
        kinds = [part.kind for part in message.parts]
        is_speaking = message.role == "assistant"
        if is_speaking and not self._is_speaking:
            self._rounds_at.append(here)
        # A message that holds its own results is a round by itself.
        self._is_speaking = is_speaking and "result" not in kinds
        waits = kinds.count("call") > kinds.count("result")
        self._open_from.append(self._open_from[here] if waits else index)
        if not kinds or any(kind != "result" for kind in kinds):
            self._results_from = index
        if is_turn(message):
            is_asked = is_prompt(message)
            if is_asked:
                self.last_prompt = here
            begins = {"message": True, "user": is_asked, "round": here in self._unit_starts}
            if begins[self._turn]:
                self._turns.append(here)

    def soft_floor(self) -> int:
        """Where the last rounds begin."""
        return self._rounds_at[-self._rounds] if len(self._rounds_at) > self._rounds else 0

    def hard_floor(self, index: int) -> int:
        """Where that begins which no cut may touch: the last turns, the live step, a call that still waits."""
        calls = self._calls
        while self._next_call < len(calls) and 0 <= calls[self._next_call].result_index < index:
            self._next_call += 1
        waiting = calls[self._next_call].index if self._next_call < len(calls) else index
        turns = self._turns[-self._last] if len(self._turns) > self._last else 0
        step = min(waiting, self._open_from[self._results_from])
        # What the model said in the same step as a call belongs to it.
        return min(turns, index - 1, step, self.newest_call if step < index else index)


class Stale:
    """Results that a later call made worthless: read again, written over, or failed and tried again."""

    def __init__(self, conversation: Conversation, config: Steady) -> None:
        self._roles = config.tool_roles
        answered = [call for unit in conversation.units for call in unit.calls if call.result is not None]
        self._calls = sorted(answered, key=lambda call: (call.result_index, call.index))
        self._next = 0
        self._reads: dict[str, dict[str, tuple[int, Call]]] = {}
        self._failed: dict[tuple[str, str], list[tuple[int, Call]]] = {}
        self._failed_tools: set[str] = set()
        self._found: list[tuple[int, Call, Code]] = []

    def look(self, index: int, unit_of: list[int]) -> None:
        """Take in the calls answered before an index."""
        while self._next < len(self._calls) and self._calls[self._next].result_index < index:
            call = self._calls[self._next]
            self._next += 1
            self._see(unit_of[call.index], call)

    def take(self, until: int) -> list[tuple[int, Call, Code]]:
        """What has become worthless in the first ``until`` units, each once."""
        ready = [found for found in self._found if found[0] < until]
        self._found = [found for found in self._found if found[0] >= until]
        return ready

    def _see(self, number: int, call: Call) -> None:
        name = call.part.name
        assert call.result is not None
        if call.result.state == "error":
            self._failed_tools.add(name)
            self._failed.setdefault((name, _first_argument(call.part)), []).append((number, call))
            return
        if name in self._failed_tools:
            again = self._failed.pop((name, _first_argument(call.part)), [])
            self._found += [(old, failed, Code.RETRIED_CALL) for old, failed in again]
        role = self._roles.get(name)
        if role is not None:
            self._access(number, call, role.argument, role.access == "write")

    def _access(self, number: int, call: Call, argument: str, is_write: bool) -> None:
        arguments = _arguments(call.part)
        key = arguments.get(argument)
        if not isinstance(key, str):
            return
        reads = self._reads.setdefault(key, {})
        if is_write or len(arguments) == 1:
            self._found += [(old, read, Code.STALE_READ) for old, read in reads.values()]
            reads.clear()
        if not is_write:
            same = reads.pop(call.part.text, None)
            if same is not None:
                self._found.append((*same, Code.STALE_READ))
            reads[call.part.text] = (number, call)


class Thinking:
    """Signed thinking that goes with a cut, for it is bound to what the cut changed; each piece is taken once."""

    def __init__(self, conversation: Conversation, policy: Policy) -> None:
        self._count = conversation.count
        self._is_stripped = policy.thinking == "strip"
        self._ahead: list[tuple[int, int]] = []  # not yet decided, newest last
        self._before: list[tuple[int, int]] = []  # in front of every edit so far
        self._first_edit: int | None = None
        self.live_turn = 0

    def take(self, index: int, message: Message) -> None:
        """Take in the next message."""
        if message.role == "assistant":
            self.live_turn = index - 1
            bound = [part for part in message.parts if part.kind == "reasoning" and part.state == "bound"]
            if bound and self._is_stripped:
                self._ahead.append((index - 1, sum(count_part(part, self._count) for part in bound)))
        elif any(part.kind != "result" for part in message.parts):
            self.live_turn = index

    def begin(self) -> list[tuple[int, int]]:
        """What a new cut strips for the edits made before it."""
        return self._take() if self._first_edit is not None else []

    def edited(self, index: int) -> list[tuple[int, int]]:
        """What an edit strips."""
        if self._first_edit is not None and index >= self._first_edit:
            return []
        self._first_edit = index
        stripped: list[tuple[int, int]] = []
        while self._before and self._before[-1][0] >= index:
            stripped.append(self._before.pop())
        return stripped + self._take()

    def _take(self) -> list[tuple[int, int]]:
        first = self._first_edit or 0
        ready = [thought for thought in self._ahead if thought[0] < self.live_turn]
        self._ahead = self._ahead[len(ready) :]
        self._before += [thought for thought in ready if thought[0] < first]
        return [thought for thought in ready if thought[0] >= first]


class Digest:
    """The one notice that stands for what was dropped; it is written anew only when a cut drops more."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._messages = 0
        self._tools: dict[str, None] = {}
        self._names: dict[str, None] = {}
        self._removed = 0  # tokens
        self._is_due = False
        self.text = ""
        self.tokens = 0

    def add(self, messages: int, tools: Iterable[str], tokens: int) -> None:
        """Count what was dropped."""
        self._messages += messages
        self._tools.update((" ".join(name.split()), None) for name in tools if name.strip())
        self._removed += tokens // 2  # a notice takes no more than half of what it stands for
        self._is_due = True

    def merge(self, text: str, tokens: int) -> None:
        """Take over what an earlier notice said."""
        messages, tools, names = pruned_steps(text)
        self.add(messages + summarized_turns(text), [*tools, *pruned_tools(text)], 2 * tokens)
        self.learn(names)

    def learn(self, names: Iterable[str]) -> None:
        """Names that stood in what was dropped."""
        self._names.update(dict.fromkeys(names))

    def room(self, most: int) -> int:
        """Tokens that the notice may take."""
        return min(most, self._removed) if self._is_due else self.tokens

    def write(self, room: int, evidence: Evidence) -> bool:
        """Write the notice within so many tokens; whether it changed."""
        if not self._is_due:
            return False
        self._is_due = False
        missing = [name for name in self._remember(room, evidence) if evidence.present[name] <= 0]
        self.text, self.tokens = "", 0
        names_room = int(room * CHARS_PER_TOKEN)
        while names_room >= 0:
            fitting = fit_names(missing, names_room) if names_room else set()
            names = [name for name in self._names if name in fitting]
            text = steps_text(self._messages, self._tools if names or not names_room else (), names)
            tokens = self._count(text)
            if tokens <= room:
                self.text, self.tokens = text, tokens
                break
            names_room = int(names_room * 0.8 * room / tokens) - 1 if names_room else -1
            names_room = max(names_room, 0) if names else -1
        return True

    def _remember(self, room: int, evidence: Evidence) -> list[str]:
        """The names worth most, best first: twice as many as can be written, the others are forgotten."""
        ranked = rank_names(self._names, evidence.worth)
        most = int(room * CHARS_PER_TOKEN) // CHARS_PER_NAME * 2
        if len(ranked) > most:
            best = set(ranked[:most])
            self._names = {name: None for name in self._names if name in best}
        return ranked[:most]

    def _count(self, text: str) -> int:
        dialect = self._conversation.dialect
        return self._conversation.read(raw(dialect.say(dialect.notice_role, text)), 0).tokens


class Anchor:
    """By what a cut knows its array again: a hash of all before it, each message hashed once."""

    def __init__(self, originals: Sequence[Raw]) -> None:
        self._originals = originals
        self._hash = hashlib.sha256()
        self._next = 0

    def at(self, place: int) -> str:
        """The hash of the messages before a place that is never earlier than the last one asked for."""
        while self._next < place:
            self._hash.update(self._originals[self._next])
            self._next += 1
        return self._hash.hexdigest()[:ANCHOR_DIGITS]


def _length(part: Part) -> int:
    return sum(len(text) for _, text in part.slots) + part.size


def _result_at(message: Message, call: Call) -> Part | None:
    path = call.result.path if call.result is not None else None
    return next((part for part in message.parts if part.kind == "result" and part.path == path), None)


def _arguments(part: Part) -> dict[str, Any]:
    try:
        value = json.loads(part.text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _first_argument(part: Part) -> str:
    arguments = _arguments(part)
    return str(next(iter(arguments.values()))) if arguments else part.text

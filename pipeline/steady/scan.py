"""The scan: one pass over a conversation that decides what is rewritten and dropped, and where it cut."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Final

from contracts import Code, Cut, Economics, Policy
from contracts.policy import Budget, Steady
from pipeline.conversation import Conversation
from pipeline.decisions import Hints, Plan, Rewrite
from pipeline.keep import first_prompt, is_pinned, is_turn
from pipeline.notices import CLEARED, RESUMED, STUBS, is_condensed, notice_text
from pipeline.splice import splice
from pipeline.steady.anchor import Anchor
from pipeline.steady.digest import Digest
from pipeline.steady.economics import pays, weigh
from pipeline.steady.evidence import Evidence, condense
from pipeline.steady.marks import Marks
from pipeline.steady.stale import Stale
from pipeline.steady.thoughts import Thoughts
from pipeline.steady.window import Window
from pipeline.tokens import calibrate
from pipeline.units import Call
from pipeline.view import Message, Part

SHORTEST_RESULT: Final = 400  # characters; condensing less gains nothing worth a reader's doubt
CHANGEABLE: Final = ("", "error")


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
        self.thoughts = Thoughts(conversation, policy)
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
        self.thoughts.take(index, message)
        if "compaction" in message.view.marks:
            self.compaction = number  # the one that counts; what stands before it goes for free

    def _decide(self, index: int, is_last: bool) -> None:
        reason = self._reason(is_last)
        if reason is None:
            return
        soft, hard = self._reach(index)
        # Where all that a cut may touch is gone already, it is not tried again with every message.
        if self._outdated() or self.to_drop < (hard if reason is Code.HARD_LIMIT else soft):
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
        self._strip(self.thoughts.begin())

    def _close(self, index: int, reason: str, before: int, *, is_published: bool) -> None:
        self.account = (index, reason, before, self.total)
        self.is_published = is_published
        self.thinking_until = self._at(self.thoughts.live_turn)

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
        self._drop(until, target, room, 0.0)  # what was condensed may still be longer than expected

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
        for number in self._outdated():
            self.deferred.remove(number)
            self._drop_unit(number)
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

    def _outdated(self) -> list[int]:
        """The prompts that were spared as the last and no longer are."""
        return [number for number in self.deferred if self.window.last_prompt not in range(*self._span(number))]

    def _drop_unit(self, number: int) -> None:
        for old in self.notices:
            self.digest.merge(notice_text(self.messages[self.units[old].start]), self.sizes[old])
            self._remove(old)
        self.notices = []
        unit = self.units[number]
        turns = sum(is_turn(message) for message in self.messages[unit.start : unit.end])
        self.digest.add(turns, (call.part.name for call in unit.calls), self.sizes[number])
        for index in range(unit.start, unit.end):
            self.digest.learn(self.evidence.forget(index))
        self._remove(number)

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
        self._strip(self.thoughts.edited(index))

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


def _length(part: Part) -> int:
    return sum(len(text) for _, text in part.slots) + part.size


def _result_at(message: Message, call: Call) -> Part | None:
    path = call.result.path if call.result is not None else None
    return next((part for part in message.parts if part.kind == "result" and part.path == path), None)

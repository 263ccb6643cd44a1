"""The account of the demo: what was sent, what came back for it, and what that saved."""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Raw

from contracts import Metrics, Pruned

RECENT_S: Final = 3.0
RECENT_DELAYS: Final = 2_000


class Sample(NamedTuple):
    """One conversation as it was sent and what came of it."""

    messages: Sequence[Raw]
    result: Pruned


class Tally:
    """Every snapshot of one run, and the figures that the view shows."""

    def __init__(self) -> None:
        self.waiting: dict[str, Sequence[Raw]] = {}
        self.results: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.saved_by_stage: Counter[str] = Counter()
        self.tokens_before = self.tokens_after = self.sent = 0
        self.sample: Sample | None = None
        self._delays: deque[int] = deque(maxlen=RECENT_DELAYS)
        self._times: deque[float] = deque()

    @property
    def twice(self) -> int:
        """How many snapshots got more than one result."""
        return sum(count > 1 for count in self.results.values())

    @property
    def is_balanced(self) -> bool:
        """Whether every snapshot has exactly one result."""
        return not self.waiting and not self.twice and len(self.results) == self.sent

    def note_sent(self, snapshot_id: str, messages: Sequence[Raw]) -> None:
        """A snapshot is on its way."""
        self.sent += 1
        self.waiting[snapshot_id] = messages

    def note_result(self, result: Pruned, now: float) -> None:
        """A result was picked up."""
        self.results[result.snapshot_id] += 1
        self.outcomes[result.status] += 1
        self.tokens_before += result.tokens.before
        self.tokens_after += result.tokens.after
        self._times.append(now)
        messages = self.waiting.pop(result.snapshot_id, None)
        if messages is not None:
            self._consider(Sample(messages, result))

    def note_metrics(self, row: Metrics) -> None:
        """A worker reported how one snapshot went."""
        self._delays.append(row.queue_delay_ms)
        for stage, figures in row.stages.items():
            self.saved_by_stage[stage] += figures.tokens_saved

    def rate(self, now: float) -> float:
        """Results per second, of late."""
        while self._times and self._times[0] < now - RECENT_S:
            self._times.popleft()
        return len(self._times) / RECENT_S

    def delay_ms(self, share: float) -> int:
        """The queue delay that this share of recent snapshots stayed below."""
        ordered = sorted(self._delays)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0

    def _consider(self, sample: Sample) -> None:
        if self.sample is None or _merit(sample) > _merit(self.sample):
            self.sample = sample


def _merit(sample: Sample) -> tuple[int, int]:
    # The most telling example shows every stage at work on the fewest messages.
    return len({edit.stage for edit in sample.result.edits}), -len(sample.messages)

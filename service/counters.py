"""Counters: what a worker has done, for Prometheus; labels are statuses, codes and stages, never ids."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from service.settle import Settlement, Verdict

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
DELAYS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
TOO_LATE: Final = {
    Verdict.SUPERSEDED: "superseded",
    Verdict.DUPLICATE: "duplicate",
    Verdict.OTHER_ARRAY: "duplicate",
    Verdict.VANISHED: "vanished",
}


class Children(dict[str, Counter]):
    """The counters of one label, by its value; looking a label up anew for every snapshot costs as much as counting."""

    def __init__(self, parent: Counter) -> None:
        super().__init__()
        self._parent = parent

    def __missing__(self, value: str) -> Counter:
        self[value] = child = self._parent.labels(value)
        return child


class Counters:
    """Counters of one worker process in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._settled = Children(self._count("settled", "Entries settled by this worker, by status.", "status"))
        self._refused = self._count("refused", "Entries that became dead letters, by code.", "code")
        self._lost_races = self._count("settled_elsewhere", "Entries that were already settled when this worker came.")
        self._other_arrays = self._count("other_array", "Duplicates by snapshot_id whose messages were not the same.")
        self._kept = self._count("left_pending", "Entries that the server refused to settle.")
        self._stage_seconds = Children(self._count("stage_seconds", "Time spent in each stage.", "stage"))
        self._stage_tokens = Children(self._count("stage_tokens_saved", "Tokens removed by each stage.", "stage"))
        self._tokens_before = self._count("tokens_before", "Tokens of the snapshots whose results were published.")
        self._tokens_after = self._count("tokens_after", "Tokens of the published results.")
        self.read = self._count("read", "Entries read, new or claimed from a dead worker.", "kind")
        self.failed_attempts = self._count("failed_attempts", "Isolated attempts that did not come back.", "code")
        self.vanished = self._count("vanished", "Entries deleted by somebody else while they were pending.")
        self.groups_lost = self._count("groups_lost", "Times the consumer group was gone and was created again.")
        self.redis_errors = self._count("redis_errors", "Failed reads, by kind of error.", "kind")
        self.unreplicated = self._count("unreplicated", "Settles that no replica has confirmed in time.")
        self.durability = Gauge(
            "secateur_durability_kept",
            "Whether the server gives all that the mode asks.",
            ["mode"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "secateur_snapshot_seconds", "From entry to settlement.", buckets=SECONDS, registry=self.registry
        )
        self._queue_seconds = Histogram(
            "secateur_queue_seconds", "From publishing to reading.", buckets=DELAYS, registry=self.registry
        )

    def _count(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"secateur_{name}", meaning, labels, registry=self.registry)

    def add(self, settlement: Settlement, verdict: Verdict) -> None:
        """Count one settlement by what the server said of it."""
        metrics = settlement.metrics
        if verdict is Verdict.SETTLED:
            self._lost_races.inc()
            return
        if verdict is Verdict.KEPT:
            self._kept.inc()
            return
        if verdict is Verdict.OTHER_ARRAY:
            self._other_arrays.inc()
        self._settled[TOO_LATE.get(verdict, metrics.status)].inc()
        self._seconds.observe(metrics.total_microseconds / 1e6)
        self._queue_seconds.observe(metrics.queue_delay_ms / 1e3)
        if verdict is Verdict.DEAD and settlement.refusal:
            self._refused.labels(settlement.refusal.code.value).inc()
        for stage, spent in metrics.stages.items():
            self._stage_seconds[stage].inc(spent.microseconds / 1e6)
        if verdict is Verdict.OK:
            self._tokens_before.inc(metrics.tokens_before)
            self._tokens_after.inc(metrics.tokens_after)
            for stage, spent in metrics.stages.items():
                self._stage_tokens[stage].inc(max(0, spent.tokens_saved))

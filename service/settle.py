"""Settle: the one atomic act that publishes a result and acknowledges its snapshot, and what to do when it fails."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from redis import exceptions
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from service.keys import GROUP, Keys
from service.script import Script
from service.settings import Settings
from service.settlement import Entry, Refusal, Settlement, Verdict

__all__ = ["Entry", "Refusal", "Settlement", "Settler", "Verdict"]

REPLICAS = {"fast": 0, "durable": 0, "replicated": 1}  # that must have a settle before it counts as safe
WAIT_MS = 1000
UNREACHABLE = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
PASSING = ("MISCONF", "BUSY", "NOREPLICAS", "TRYAGAIN", "UNBLOCKED")  # the server says: not now
PASSING_KINDS = (
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
    exceptions.ClusterDownError,
    exceptions.MasterDownError,
)


class Settler:
    """Settles batches; every network fault ends in running the same settle again, which never acts twice."""

    def __init__(
        self,
        client: Redis,
        keys: Keys,
        settings: Settings,
        log: FilteringBoundLogger,
        recreate_groups: Callable[[], Awaitable[None]],
        say_unreplicated: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._keys = keys
        self._log = log
        self._recreate_groups = recreate_groups
        self._say_unreplicated = say_unreplicated
        self._replicas = REPLICAS[settings.durability]
        self._script = Script("settle")
        self._marker_ttl_ms = settings.marker_ttl_s * 1000
        self._inbox_ttl_ms = settings.inbox_ttl_s * 1000
        self._blob_above_bytes = settings.blob_above_bytes
        self._blob_ttl_ms = settings.blob_ttl_s * 1000
        self._limits = (settings.fence_ttl_s * 1000, settings.results_kept, settings.metrics_kept)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        """The verdict on each settlement; waits out a server that is away."""
        verdicts = [Verdict.KEPT] * len(settlements)
        open_ones = list(range(len(settlements)))
        blobless: set[int] = set()
        delays = growing_delays()
        while open_ones:
            replies = await self._send([(settlements[index], index not in blobless) for index in open_ones])
            again = []
            for index, reply in zip(open_ones, replies, strict=True):
                if isinstance(reply, list):
                    verdicts[index] = Verdict(reply[0].decode())
                elif str(reply).startswith("NOBLOB"):
                    blobless.add(index)
                    again.append(index)
                elif is_passing(reply):
                    again.append(index)
                else:
                    self._log.error("settle_refused", entry_id=settlements[index].entry.id, error=str(reply)[:200])
            await self._prepare_again([reply for reply in replies if isinstance(reply, Exception)], delays)
            open_ones = again
        return verdicts

    async def read_fences(self, conversations: Sequence[str]) -> list[int | None]:
        """The newest settled sequence of each conversation, as far as the server answers."""
        try:
            fences = await self._client.mget([self._keys.latest(name) for name in conversations])
        except (*UNREACHABLE, exceptions.RedisError):
            return [None] * len(conversations)
        return [int(fence) if fence and fence.isdigit() else None for fence in fences]

    async def _send(self, settlements: list[tuple[Settlement, bool]]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        answers = []
        for settlement, may_be_blob in settlements:
            blob = self._blob_key(settlement) if may_be_blob else ""
            if blob:
                # Beside the script, which would copy it twice; without its settle it goes by itself.
                pipeline.set(blob, settlement.result, px=self._blob_ttl_ms)
            answers.append(len(pipeline))
            pipeline.execute_command(*self._script.command(*self._arguments(settlement, blob)))
        if self._replicas:
            pipeline.execute_command("WAIT", self._replicas, WAIT_MS)  # counts for what this connection has written
        try:
            replies = await pipeline.execute(raise_on_error=False)
            if self._replicas and not (isinstance(replies[-1], int) and replies[-1] >= self._replicas):
                self._report_unreplicated(len(settlements), replies[-1])
            return [replies[place] for place in answers]
        except UNREACHABLE as error:
            # The server may have settled all the same: nobody knows until the same settle is run again.
            return [error] * len(settlements)

    def _report_unreplicated(self, count: int, reply: object) -> None:
        self._say_unreplicated(count)
        self._log.error(
            "settle_unreplicated", count=count, detail=f"WAIT said {reply}" if reply == 0 else "WAIT failed"
        )

    async def _prepare_again(self, errors: list[Exception], delays: Iterator[float]) -> None:
        try:
            if any(isinstance(error, exceptions.NoScriptError) for error in errors):
                await self._script.load(self._client)
            elif any(is_missing_group(error) for error in errors):
                await self._recreate_groups()
            elif any(is_passing(error) for error in errors):
                self._log.warning("settle_delayed", error=type(errors[0]).__name__)
                await asyncio.sleep(next(delays))
        except (*UNREACHABLE, exceptions.ResponseError):
            await asyncio.sleep(next(delays))

    def _blob_key(self, settlement: Settlement) -> str:
        if not self._blob_above_bytes or len(settlement.result) <= self._blob_above_bytes:
            return ""
        # By entry and not by snapshot: a resend with another body must not touch the first one's result.
        kind = "batch-" if settlement.entry.stream == self._keys.batch else ""
        return self._keys.blob(kind + settlement.entry.id)

    def _arguments(self, settlement: Settlement, blob: str) -> tuple[list[str], list[Any]]:
        keys, entry, refusal = self._keys, settlement.entry, settlement.refusal
        names = [
            entry.stream,
            keys.results(settlement.inbox),
            keys.metrics,
            keys.dead,
            keys.done(settlement.snapshot_id),
            keys.latest(settlement.conversation_id),
            keys.attempts,
        ]
        values = [
            GROUP,
            entry.id,
            self._marker_ttl_ms if settlement.is_resendable else 0,
            "" if settlement.sequence is None else settlement.sequence,
            *self._limits,
            settlement.row,
            settlement.short_row,
            settlement.fingerprint,
        ]
        if refusal is None:
            inbox_ttl_ms = self._inbox_ttl_ms if settlement.inbox else 0
            result = b"" if blob else settlement.result
            more = [settlement.short_result, settlement.snapshot_id, inbox_ttl_ms]
            kind = "result" if settlement.result else "late"
            return [*names, blob] if blob else names, [*values, kind, result, *more]
        why = [refusal.code.value, refusal.detail, settlement.metrics.attempts, refusal.sha256, refusal.size]
        return names, [*values, "dead", *why, settlement.snapshot_id]


def is_missing_group(error: BaseException) -> bool:
    """Whether the server has lost our group, after FLUSHALL for one."""
    return isinstance(error, exceptions.ResponseError) and str(error).startswith("NOGROUP")


def is_passing(error: BaseException) -> bool:
    """Whether the same command may succeed later without anybody's help."""
    return (
        isinstance(error, (*UNREACHABLE, *PASSING_KINDS, exceptions.NoScriptError))
        or is_missing_group(error)
        or str(error).startswith(PASSING)
    )


def growing_delays(first_s: float = 0.05, most_s: float = 2.0) -> Iterator[float]:
    """Seconds to wait between tries: doubling, jittered, never long enough to miss a server's return."""
    delay = first_s
    while True:
        yield delay * random.uniform(0.5, 1.0)
        delay = min(delay * 2, most_s)

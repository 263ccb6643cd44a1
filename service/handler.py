"""Handler: what a worker does with the entries of one read: prune each, settle them together, say what came of it."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError
from structlog.typing import FilteringBoundLogger

from contracts import Code, Refused
from service.counters import Counters
from service.entry import Desk, Opened, describe_fault, open_entry, pass_over, prune_opened, refuse_entry
from service.health import Health
from service.heartbeat import Heartbeat
from service.isolate import AttemptFailed, Cell, CellUnavailable
from service.keys import GROUP, Keys
from service.lane import make_claimable
from service.limits import set_deadline
from service.observe import log_snapshot
from service.script import Script
from service.settle import Entry, Settlement, Settler, Verdict

SETTLE_AFTER_S: Final = 0.05  # so the event loop turns, and what is done does not wait for what is slow

T = TypeVar("T")
R = TypeVar("R")


class Handler:
    """Handles entries in the order they came; when a stop begins, the rest stays pending and is handed back."""

    def __init__(
        self,
        client: Redis,
        keys: Keys,
        desk: Desk,
        deadline_s: float,
        settler: Settler,
        cell: Cell,
        heartbeat: Heartbeat,
        health: Health,
        counters: Counters,
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client
        self._keys = keys
        self._desk = desk
        self._deadline_s = deadline_s
        self._settler = settler
        self._cell = cell
        self._heartbeat = heartbeat
        self._health = health
        self._counters = counters
        self._log = log
        self._forgive_script = Script("forgive")

    async def handle(self, entries: list[Entry]) -> None:
        """Settle every entry; a fault of ours leaves the rest pending for the reaper and the worker goes on."""
        try:
            with self._heartbeat.holding(entries):
                if entries[0].attempts:
                    await self._try_alone(entries[0])
                else:
                    await self._handle(entries)
        except Exception as error:
            self._log.error("batch_failed", count=len(entries), error=describe_fault(error))

    async def _handle(self, entries: list[Entry]) -> None:
        await self._work_off([self._within_deadline(open_entry, entry) for entry in entries])

    async def _work_off(self, read: Sequence[Opened | Settlement]) -> None:
        late = await self._find_late([one for one in read if isinstance(one, Opened)])
        passed_over = set(map(id, late))
        await self._prune([one for one in read if id(one) not in passed_over])
        if late and not self._health.is_draining:
            verdicts = await self._settle([pass_over(one, self._desk) for one in late])
            await self._work_off([one for one, said in zip(late, verdicts, strict=True) if said is Verdict.NEEDED])

    async def _find_late(self, opened: list[Opened]) -> list[Opened]:
        """The snapshots that are not to be pruned: a newer one of their conversation is here or already settled."""
        fenced = [one for one in opened if one.snapshot.sequence is not None]
        if not fenced:
            return []
        names = list({one.snapshot.conversation_id for one in fenced})
        fences = await self._settler.read_fences(names)
        newest = {name: -1 if fence is None else fence for name, fence in zip(names, fences, strict=True)}
        late = []
        for one in sorted(fenced, key=_sequence, reverse=True):
            name, sequence = one.snapshot.conversation_id, _sequence(one)
            if sequence <= newest[name]:
                late.append(one)
            newest[name] = max(newest[name], sequence)
        return late

    async def _prune(self, read: list[Opened | Settlement]) -> None:
        done: list[Settlement] = []
        settle_at = time.monotonic() + SETTLE_AFTER_S
        for one in read:
            if self._health.is_draining:
                break
            settlement = self._within_deadline(prune_opened, one) if isinstance(one, Opened) else one
            if settlement.refusal and settlement.refusal.code is Code.OUT_OF_MEMORY:
                await self._suspect(settlement.entry)
                continue
            done.append(settlement)
            if self._health.is_reaping:
                await asyncio.sleep(0)  # what a dead worker left has waited long enough
            if time.monotonic() > settle_at:
                await self._settle(done)
                done, settle_at = [], time.monotonic() + SETTLE_AFTER_S
        await self._settle(done)

    async def _suspect(self, entry: Entry) -> None:
        # Whose fault a lack of memory is shows when the entry is tried alone.
        self._log.warning("suspected", entry_id=entry.id, code=Code.OUT_OF_MEMORY.value)
        with suppress(RedisError, OSError):  # then it is claimed when its time has come
            await make_claimable(self._client, entry.stream, self._desk.worker, [entry.id])

    def _within_deadline(self, step: Callable[[T, Desk], R], given: T) -> R:
        set_deadline(self._deadline_s)
        try:
            return step(given, self._desk)
        finally:
            set_deadline(0)

    async def _try_alone(self, suspect: Entry) -> None:
        try:
            settlement = await self._run_alone(suspect)
        except CellUnavailable as error:
            self._log.error("cell_unavailable", entry_id=suspect.id, error=str(error))
            await self._forgive(suspect)
        except AttemptFailed as failed:
            await self._judge(suspect, failed)
        else:
            await self._settle([settlement])

    async def _run_alone(self, suspect: Entry) -> Settlement:
        if suspect.attempts > self._desk.max_attempts:
            # The workers that made those attempts did not live to tell what came of them.
            refused = Refused(Code.CRASHED, f"{self._desk.max_attempts} isolated attempts began and none came back")
            return refuse_entry(suspect, self._desk, refused, None)
        return await self._cell.run(suspect)

    async def _judge(self, suspect: Entry, failed: AttemptFailed) -> None:
        code, detail = failed.refused.code.value, failed.refused.detail
        if self._health.is_draining:
            await self._forgive(suspect)  # it was this worker that ended the attempt
            return
        self._counters.failed_attempts.labels(code).inc()
        self._log.error("attempt_failed", entry_id=suspect.id, attempts=suspect.attempts, code=code, detail=detail)
        if suspect.attempts >= self._desk.max_attempts:
            await self._settle([refuse_entry(suspect, self._desk, failed.refused, failed.snapshot)])

    async def _settle(self, settlements: list[Settlement]) -> list[Verdict]:
        if not settlements:
            return []
        verdicts = await self._settler.settle(settlements)
        self._health.has_heard()
        for settlement, verdict in zip(settlements, verdicts, strict=True):
            if verdict is Verdict.NEEDED:
                continue
            self._counters.add(settlement, verdict)
            log_snapshot(self._log, settlement, verdict)
            if verdict is Verdict.KEPT and settlement.entry.attempts:
                await self._forgive(settlement.entry)
        return verdicts

    async def _forgive(self, suspect: Entry) -> None:
        # The attempt was not made, or came back and could not be settled: either way the entry is no killer.
        with suppress(RedisError, OSError):
            names = [suspect.stream, self._keys.attempts]
            await self._forgive_script.call(self._client, names, [GROUP, suspect.id, self._desk.worker])


def _sequence(opened: Opened) -> int:
    sequence = opened.snapshot.sequence
    return -1 if sequence is None else sequence

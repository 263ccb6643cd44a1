"""Two workers that are wrong in the usual ways, so that the check can show that it sees what they do."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from service.keys import GROUP
from service.reader import Consume, read_entries
from service.reaper import Reaper
from service.settle import Settlement, Settler, Verdict

MOST_DELIVERIES: Final = 5
LATE: Final = b'{"status":"superseded","reason":[],'
BETWEEN_S: Final = 0.02  # a real gap is shorter; the fault it opens is the same


async def _publish_then_ack(self: Any, settlements: Sequence[Settlement]) -> list[Verdict]:
    """Publish every result, then acknowledge every entry: two acts, and a death between them doubles."""
    client, keys = self._client, self._keys
    for settlement in settlements:
        if settlement.refusal:
            letter = {"__data__": settlement.entry.fields[1], "_code": settlement.refusal.code.value}
            await client.xadd(keys.dead, letter)
        else:
            result = settlement.result or LATE + settlement.short_result
            await client.xadd(keys.results(settlement.inbox), {"__data__": result})
        await client.xadd(keys.metrics, {"__data__": settlement.row or LATE + settlement.short_row})
    await asyncio.sleep(BETWEEN_S)
    acknowledge = client.pipeline(transaction=True)
    for settlement in settlements:
        acknowledge.xack(settlement.entry.stream, GROUP, settlement.entry.id)
        acknowledge.xdel(settlement.entry.stream, settlement.entry.id)
    await acknowledge.execute()
    return [Verdict.OK] * len(settlements)


async def _count_deliveries(self: Any, stream: str, consume: Consume) -> None:
    """Run what was claimed as one batch and count deliveries: who was read with a killer is convicted with it."""
    _, rows, _ = await self._client.xautoclaim(stream, GROUP, self._consumer, self._claim_after_ms, count=16)
    suspects = []
    for suspect in read_entries(stream, rows):
        (held,) = await self._client.xpending_range(stream, GROUP, suspect.id, suspect.id, 1) or [{}]
        if held.get("times_delivered", 1) > MOST_DELIVERIES:
            await consume(stream, [msgspec.structs.replace(suspect, attempts=MOST_DELIVERIES)])
        else:
            suspects.append(suspect)
    if suspects:
        await consume(stream, suspects)


def _install_publish_then_ack() -> None:
    Settler.settle = _publish_then_ack  # type: ignore[method-assign]


def _install_count_deliveries() -> None:
    Reaper._sweep = _count_deliveries  # type: ignore[method-assign]


MUTANTS: Final[dict[str, Callable[[], None]]] = {
    "publish-then-ack": _install_publish_then_ack,
    "delivery-count": _install_count_deliveries,
}

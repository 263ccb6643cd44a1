"""The fleet's side of the streams: agents publish a snapshot, wait for its result, think, and go on."""

import heapq
import random
from typing import TYPE_CHECKING, Any, Final

import msgspec

from contracts import Metrics, Pruned, Snapshot, encode
from service.demo.tally import Tally
from service.fleet import Agent, start_agent
from service.keys import BODY_FIELD, Keys

if TYPE_CHECKING:
    from redis import Redis

# Small caps, so that a conversation of a minute shows what takes hours at full size.
POLICY: Final[dict[str, Any]] = {
    "preset": "beskar",
    "keep": {"first_user": True},
    "compress": {"max_tool_result_tokens": 300},
    "collapse": {"after_turns": 10},
    "prune": {"strategy": "sliding_window", "max_turns": 20},
}
THINK_S: Final = (0.05, 0.3)
HEAD_START_TURNS: Final = 15
READ_COUNT: Final = 200
BLOCK_MS: Final = 20

_result = msgspec.json.Decoder(Pruned)
_metrics = msgspec.json.Decoder(Metrics)


class Traffic:
    """Agents of one run, each either thinking or waiting for the result of its last snapshot."""

    def __init__(self, client: "Redis", keys: Keys, tally: Tally, *, run: str, seed: int, agents: int) -> None:
        self._client, self._keys, self._tally, self._run, self._seed = client, keys, tally, run, seed
        self._pace = random.Random(seed)
        self._started = 0
        self._due: list[tuple[float, int, Agent]] = []
        self._waiting: dict[str, tuple[int, Agent]] = {}
        self._read_from: dict[Any, Any] = {
            name: _newest(client, name) for name in (keys.pruned, keys.metrics, keys.dead)
        }
        for _ in range(agents):
            self._schedule(0.0, *self._recruit(self._pace.randrange(HEAD_START_TURNS)))

    def publish_due(self, now: float) -> None:
        """Let every agent that has thought long enough take its turn, in one round trip."""
        pipeline = self._client.pipeline(transaction=False)
        while self._due and self._due[0][0] <= now:
            _, number, agent = heapq.heappop(self._due)
            while not agent.take_turn():
                number, agent = self._recruit()
            snapshot = self._snapshot(agent)
            self._waiting[snapshot.snapshot_id] = (number, agent)
            self._tally.note_sent(snapshot.snapshot_id, snapshot.messages)
            pipeline.xadd(self._keys.snapshots, {BODY_FIELD: encode(snapshot)})
        pipeline.execute()

    def collect(self, now: float) -> int:
        """Pick up what the workers published since the last time; how many entries that were."""
        found: Any = self._client.xread(self._read_from, count=READ_COUNT, block=BLOCK_MS)
        total = 0
        for name, entries in found:
            stream = name.decode()
            self._read_from[stream] = entries[-1][0]
            total += len(entries)
            self._take(stream, entries, now)
        return total

    def _take(self, stream: str, entries: list[tuple[bytes, dict[bytes, bytes]]], now: float) -> None:
        if stream == self._keys.metrics:
            for _, fields in entries:
                self._tally.note_metrics(_metrics.decode(fields[BODY_FIELD]))
        elif stream == self._keys.dead:
            self._tally.refused.update(fields.get(b"_code", b"?").decode() for _, fields in entries)
        else:
            ours = [entry_id for entry_id, fields in entries if self._pick_up(_result.decode(fields[BODY_FIELD]), now)]
            if ours:
                self._client.xdel(stream, *ours)

    def _pick_up(self, result: Pruned, now: float) -> bool:
        if not result.conversation_id.startswith(self._run):
            return False  # another demo on the same server
        self._tally.note_result(result, now)
        number, agent = self._waiting.pop(result.snapshot_id, (0, None))
        if agent is not None:
            self._schedule(now + self._pace.uniform(*THINK_S), number, agent)
        return True

    def _recruit(self, head_start: int = 0) -> tuple[int, Agent]:
        number = self._started
        self._started += 1
        agent = start_agent(self._seed, number)
        for _ in range(head_start):
            agent.take_turn()
        return number, agent

    def _schedule(self, at: float, number: int, agent: Agent) -> None:
        heapq.heappush(self._due, (at, number, agent))

    def _snapshot(self, agent: Agent) -> Snapshot:
        conversation_id = f"{self._run}-{agent.conversation_id}"
        return Snapshot(
            conversation_id=conversation_id,
            messages=agent.messages,
            snapshot_id=f"{conversation_id}:{agent.sequence}",
            sequence=agent.sequence,
            workload="demo",
            format=agent.format,
            policy=POLICY,
        )


def _newest(client: "Redis", stream: str) -> str | bytes:
    newest: Any = client.xrevrange(stream, count=1)
    return newest[0][0] if newest else "0"

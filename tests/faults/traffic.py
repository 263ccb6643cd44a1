"""Traffic: seeded snapshots with a known fate, and a producer that sends each until the server has confirmed it."""

import json
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from service.keys import Keys
from tests.faults.server import Server

KEYS: Final = Keys("main")
CONVERSATIONS: Final = 97
SHUFFLED: Final = 16  # snapshots leave in a slightly wrong order, so that the fence has work
REFUSED_SHARE: Final = 1 / 400
RESENT_SHARE: Final = 1 / 500
LONG_SHARE: Final = 1 / 50
SENT_AT_ONCE: Final = 20
BACKLOG: Final = 600  # enough for every worker, little enough that faults meet a live flow
WINDOW: Final = {"prune": {"strategy": "sliding_window", "max_turns": 6}}


@dataclass(frozen=True)
class Sent:
    """One snapshot and what must become of it: `result`, or the code of its dead letter."""

    id: str
    fate: str
    body: bytes


def snapshots(seed: int, count: int, poisons: dict[str, int] | None = None, prefix: str = "s") -> Iterator[Sent]:
    """The same snapshots for the same seed; poisons, by kind, lie scattered among them."""
    chance = random.Random(f"traffic/{seed}")
    kinds = [kind for kind, times in sorted((poisons or {}).items()) for _ in range(times)]
    places = dict(zip(sorted(chance.sample(range(count // 20, count), len(kinds))), kinds, strict=True))
    waiting: list[Sent] = []
    for number in range(count):
        waiting.append(_snapshot(f"{prefix}-{number}", number, chance, places.get(number, "")))
        if len(waiting) == SHUFFLED:
            yield waiting.pop(chance.randrange(SHUFFLED))
    chance.shuffle(waiting)
    yield from waiting


POISON_FATES: Final = {"crash": "crashed", "hang": "timed_out", "memory": "out_of_memory"}


def _snapshot(name: str, number: int, chance: random.Random, poison: str) -> Sent:
    length = 60 if chance.random() < LONG_SHARE else chance.randrange(2, 14)
    body: dict[str, Any] = {
        "conversation_id": f"c-{number % CONVERSATIONS}",
        "snapshot_id": name,
        "sequence": number,
        "messages": _messages(length, chance),
        "policy": WINDOW,
    }
    fate = "result"
    if poison:
        body["workload"], fate = f"poison-{poison}", POISON_FATES[poison]
    elif chance.random() < REFUSED_SHARE:
        body["policy"], fate = "no-such-preset", "unknown_policy"
    if fate != "result":
        body["conversation_id"] = name  # a newer one of its conversation would spare it its fate
    return Sent(name, fate, json.dumps(body).encode())


def _messages(length: int, chance: random.Random) -> list[dict[str, str]]:
    text = f"message {chance.random()} " * chance.randrange(2, 12)
    return [{"role": "user" if n % 2 == 0 else "assistant", "content": f"{n} {text}"} for n in range(length)]


class Producer(threading.Thread):
    """Sends everything it is given; what was not confirmed is sent again under the same id."""

    def __init__(self, server: Server, traffic: Iterator[Sent], seed: int, *, replicas: int = 0) -> None:
        super().__init__(daemon=True)
        self.fates: dict[str, str] = {}
        self.sends: Counter[str] = Counter()
        self.fault: BaseException | None = None
        self._server = server
        self._traffic = traffic
        self._chance = random.Random(f"producer/{seed}")
        self.replicas = replicas
        self.allowed = math.inf  # how many snapshots may be sent, so that traffic does not outrun the faults
        self._has_enough = threading.Event()
        self._has_given_up = threading.Event()

    @property
    def resends(self) -> int:
        """Times a snapshot was sent again, so that a duplicate may have been recognised."""
        return sum(self.sends.values()) - len(self.sends)

    def finish(self) -> None:
        """Take up nothing more, and return when all that was taken up is confirmed."""
        self._has_enough.set()
        self.join(60)

    def stop(self) -> None:
        """Give up, whatever is left."""
        self._has_enough.set()
        self._has_given_up.set()
        self.join(10)

    def run(self) -> None:
        """Send until all is confirmed."""
        try:
            with self._server.client() as client:
                self._send_all(client)
        except BaseException as error:
            self.fault = error

    def _send_all(self, client: Redis) -> None:
        batch: list[Sent] = []
        for sent in self._traffic:
            if self._has_enough.is_set():
                break
            batch.append(sent)
            if self._chance.random() < RESENT_SHARE and sent.fate == "result":
                batch.append(sent)
            if len(batch) >= SENT_AT_ONCE:
                self._confirm(client, batch)
                batch = []
        self._confirm(client, batch)

    def _confirm(self, client: Redis, batch: list[Sent]) -> None:
        while len(self.fates) > self.allowed and not self._has_given_up.is_set():
            time.sleep(0.01)
        while batch and not self._has_given_up.is_set():
            try:
                while client.xlen(KEYS.snapshots) > BACKLOG and not self._has_given_up.is_set():
                    time.sleep(0.01)
                batch = self._try(client, batch)
            except (RedisError, OSError):
                pass
            if batch:
                time.sleep(0.05)

    def _try(self, client: Redis, batch: list[Sent]) -> list[Sent]:
        """Send a batch; what remains unconfirmed."""
        pipeline: Any = client.pipeline(transaction=False)
        for sent in batch:
            pipeline.xadd(KEYS.snapshots, {"__data__": sent.body})
            self.sends[sent.id] += 1
        if self.replicas:
            pipeline.execute_command("WAIT", self.replicas, 500)
        replies = pipeline.execute(raise_on_error=False)
        copies = replies.pop() if self.replicas else 0
        is_copied = isinstance(copies, int) and copies >= self.replicas
        left = []
        for sent, reply in zip(batch, replies, strict=True):
            if isinstance(reply, bytes) and is_copied:
                self.fates[sent.id] = sent.fate
            else:
                left.append(sent)
        return left

"""Real worker processes for the tests, and the check that every snapshot has exactly one result."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from redis import Redis

from service.keys import GROUP, Keys

KEYS = Keys("main")
WORKER = [sys.executable, "-m", "service.cli", "worker"]
PATIENCE_S = 60.0  # of a slow machine with other things to do


class Process:
    """One process started by a test, and what it wrote."""

    def __init__(self, command: list[str], url: str, log: Path, **settings: str) -> None:
        own = {f"SECATEUR_{name.upper()}": value for name, value in settings.items()}
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SECATEUR_")}
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env=environ | {"SECATEUR_REDIS_URL": url, "SECATEUR_LOG": "json"} | own,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self.pid = self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def terminate(self) -> int:
        """Ask it to stop; its exit code."""
        self._process.terminate()
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(PATIENCE_S)

    def lines(self) -> list[dict[str, Any]]:
        """Its log, every line of which must be strict JSON, but for the greeting."""
        text = self.log.read_text()
        return [json.loads(line, parse_constant=int) for line in text.splitlines() if not line.startswith("secateur ")]

    def said(self, event: str) -> bool:
        return self.count(event) > 0

    def count(self, event: str) -> int:
        """How often its log has this event."""
        return self.log.read_text().count(f'"event":"{event}"')


@contextmanager
def running(command: list[str], url: str, log: Path, **settings: str) -> Iterator[Process]:
    """A process that does not outlive the test."""
    process = Process(command, url, log, **settings)
    try:
        yield process
    finally:
        process.kill()


def wait_until(is_true: Callable[[], object], what: str) -> None:
    """Return as soon as it is true; say what was missing when it never is."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.01)


def snapshot(number: int, **fields: Any) -> bytes:
    """A snapshot whose pruning takes a moment; an id for each number."""
    messages = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"message {n} " * 10} for n in range(50)]
    body = {"conversation_id": f"c-{number % 97}", "snapshot_id": f"s-{number}", "messages": messages}
    return json.dumps(body | fields).encode()


def publish(redis: Redis, bodies: Iterator[bytes] | list[bytes], stream: str = KEYS.snapshots) -> None:
    """Add entries as any producer would."""
    pipeline = redis.pipeline(transaction=False)
    for body in bodies:
        pipeline.xadd(stream, {"__data__": body})
    pipeline.execute()


def results(redis: Redis, stream: str = KEYS.pruned) -> list[dict[str, Any]]:
    rows: Any = redis.xrange(stream)
    return [json.loads(fields[b"__data__"]) for _, fields in rows]


def dead_letters(redis: Redis) -> list[dict[bytes, bytes]]:
    rows: Any = redis.xrange(KEYS.dead)
    return [fields for _, fields in rows]


def unsettled(redis: Redis) -> int:
    """Entries that have no outcome yet."""
    return sum(int(redis.xlen(stream)) for stream in KEYS.inputs)


def pending(redis: Redis) -> int:
    return sum(redis.xpending(stream, GROUP)["pending"] for stream in KEYS.inputs)


class Findings(NamedTuple):
    """What is wrong with the results of a run."""

    lost: set[str]
    doubled: set[str]


def check_results(redis: Redis, sent: set[str]) -> Findings:
    """Compare what was sent with what was published: each exactly once."""
    counts = Counter(result["snapshot_id"] for result in results(redis))
    return Findings(sent - counts.keys(), {name for name, count in counts.items() if count > 1})


def balance(redis: Redis) -> int:
    """Entries that went without leaving a metrics row."""
    info: Any = [redis.xinfo_stream(stream) for stream in (*KEYS.inputs, KEYS.metrics)]
    *inputs, metrics = info
    gone = sum(int(stream["entries-added"]) - int(stream["length"]) for stream in inputs)
    return gone - int(metrics["entries-added"])

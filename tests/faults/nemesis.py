"""The nemesis: what can be done to workers, server and connections in the middle of the work, and undone again."""

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from redis.exceptions import RedisError

from tests.faults.fleet import Fleet, held_by, still_pending
from tests.faults.points import DRAIN_POINTS, POINTS
from tests.faults.server import UNLIMITED, Server
from tests.faults.traffic import KEYS

# A settle that the crash of the server cut short: what the log then ends with.
TORN_TAIL: Final = (
    b"*1\r\n$5\r\nMULTI\r\n*5\r\n$4\r\nXADD\r\n$13\r\n{main}:pruned\r\n$1\r\n*\r\n$8\r\n__data__\r\n$40\r\n{"
)

Undo = Callable[[], None]
Watch = Callable[[], bool]


@dataclass
class Injection:
    """One fault: when it came and how long its traces were seen; None when there was nothing to recover."""

    fault: str
    at: float
    at_ms: int
    recovery_s: float | None = None


@dataclass
class Nemesis:
    """Injects faults one by one; what must be undone later waits in a queue that `turn` works off."""

    server: Server
    fleet: Fleet
    chance: random.Random
    claim_s: float
    injections: list[Injection] = field(default_factory=list)
    _due: list[tuple[float, int, Undo]] = field(default_factory=list)
    _watches: list[tuple[Injection, float, Watch]] = field(default_factory=list)
    _numbers: Any = field(default_factory=count)
    _server_is_hit: bool = False
    _armed: dict[int, Injection] = field(default_factory=dict)
    _missed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._client: Any = self.server.client(socket_timeout=1.0)  # Any: the stubs know two kinds of replies

    @property
    def is_quiet(self) -> bool:
        """Whether everything is undone and everybody has recovered."""
        return not self._due and not self._watches

    def inject(self, fault: str) -> bool:
        """Do it, unless it cannot be done right now."""
        if fault in SERVER_FAULTS and self._server_is_hit:
            return False
        if fault in WORKER_FAULTS and not self.fleet.pids:
            return False
        injection = Injection(fault, time.monotonic(), time.time_ns() // 1_000_000)
        if not FAULTS[fault](self, injection):
            return False
        if injection not in self._armed.values():
            self.injections.append(injection)
        return True

    def turn(self) -> None:
        """Replace the dead, undo what is due and see who has recovered."""
        for pid, cause in self.fleet.tend().items():
            self._note_death(pid, cause)
        while self._due and self._due[0][0] <= time.monotonic():
            heappop(self._due)[2]()
        if self._watches and not self._server_is_hit:
            self._watches = [watch for watch in self._watches if not self._has_recovered(*watch)]

    def take_missed(self) -> list[str]:
        """Faults whose worker died of something else before it came to its point: to be injected again."""
        missed, self._missed = self._missed, []
        return missed

    def end(self) -> None:
        """Undo everything at once."""
        while self._due:
            heappop(self._due)[2]()

    def settled(self) -> int | None:
        """Entries settled so far; None while the server is away."""
        if self._server_is_hit:
            return None
        added: int | None = _ask(lambda: self._client.xinfo_stream(KEYS.metrics)["entries-added"])
        return added

    def unsettled(self) -> int | None:
        """Entries that wait for their outcome; None while the server is away."""
        if self._server_is_hit:
            return None
        waiting: int | None = _ask(lambda: sum(self._client.xlen(stream) for stream in KEYS.inputs))
        return waiting

    def _has_recovered(self, injection: Injection, since: float, watch: Watch) -> bool:
        if not _ask(watch):
            return False
        injection.recovery_s = time.monotonic() - since
        return True

    def _note_death(self, pid: int, cause: str) -> None:
        injection = self._armed.pop(pid, None)
        if injection and cause == "point":
            # Only now is it sure that the point was reached.
            injection.at_ms = time.time_ns() // 1_000_000
            self.injections.append(injection)
            self._watch_entries_of(pid, injection)
            return
        if injection:
            self._missed.append(injection.fault)
        if cause in ("poison", "deadline"):
            name = "poison that crashes" if cause == "poison" else "deadline of a worker"
            self.injections.append(Injection(name, time.monotonic(), time.time_ns() // 1_000_000))

    def _later(self, delay_s: float, undo: Undo) -> None:
        heappush(self._due, (time.monotonic() + delay_s, next(self._numbers), undo))

    def _victim(self) -> int:
        return self.chance.choice(self.fleet.pids)

    def _watch_entries_of(self, pid: int, injection: Injection) -> None:
        held = _ask(lambda: held_by(self._client, pid)) or set()
        if held:
            self._watches.append((injection, time.monotonic(), lambda: not still_pending(self._client, held)))

    def _watch_progress(self, injection: Injection) -> None:
        before = self.settled() or 0
        self._watches.append(
            (injection, time.monotonic(), lambda: (self.settled() or 0) > before or self.unsettled() == 0)
        )

    def kill_worker(self, injection: Injection) -> bool:
        pid = self._victim()
        self.fleet.kill(pid)
        self._watch_entries_of(pid, injection)
        return True

    def pause_worker(self, injection: Injection) -> bool:
        pid = self._victim()
        self.fleet.send(pid, signal.SIGSTOP)
        self.fleet.paused.add(pid)
        self._watch_entries_of(pid, injection)

        def resume() -> None:
            if pid in self.fleet.paused:
                self.fleet.send(pid, signal.SIGCONT)
                self.fleet.paused.discard(pid)

        self._later(self.claim_s * self.chance.uniform(0.5, 3.0), resume)
        return True

    def stop_worker(self, injection: Injection) -> bool:
        pid = self._victim()
        self.fleet.send(pid, signal.SIGTERM)
        self._watch_entries_of(pid, injection)
        return True

    def stop_and_crash(self, injection: Injection) -> bool:
        pid = self._victim()
        self.crash_at(pid, self.chance.choice(DRAIN_POINTS), injection)
        self.fleet.send(pid, signal.SIGTERM)
        return True

    def crash_at(self, pid: int, point: str, injection: Injection) -> None:
        """Arm a worker; the fault counts when the worker has come to the point."""
        if pid in self._armed:
            self._missed.append(self._armed[pid].fault)
        self.fleet.arms.arm(pid, point)
        self._armed[pid] = injection

    def kill_clients(self, injection: Injection) -> bool:
        if _ask(lambda: self._client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")) is None:
            return False
        self._watch_progress(injection)
        return True

    def flush_scripts(self, injection: Injection) -> bool:
        if not _ask(lambda: self._client.script_flush()):
            return False
        self._watch_progress(injection)
        return True

    def pause_server(self, injection: Injection) -> bool:
        self.server.pause()
        self._hit_server(injection, self.chance.uniform(0.3, 3.5), self.server.resume)
        return True

    def kill_server(self, injection: Injection) -> bool:
        self.server.kill()
        self._hit_server(injection, self.chance.uniform(0.0, 1.0), self._start_server)
        return True

    def tear_log(self, injection: Injection) -> bool:
        self.server.kill()
        with self.server.log_file().open("ab") as log:
            log.write(TORN_TAIL[: self.chance.randrange(1, len(TORN_TAIL))])
        self._hit_server(injection, 0.0, self._start_server)
        return True

    def fill_disk(self, injection: Injection) -> bool:
        self.server.limit_files(1)

        def free() -> None:
            # With a log that is synced always, the server ends at its first failed write.
            if self.server.has_ended:
                self._start_server()
            else:
                self.server.limit_files(UNLIMITED)

        self._hit_server(injection, self.chance.uniform(0.3, 1.0), free)
        return True

    def fill_memory(self, injection: Injection) -> bool:
        if not _ask(lambda: self._client.config_set("maxmemory", 1)):
            return False
        self._watch_progress(injection)
        self._later(self.chance.uniform(0.3, 1.0), self._free_memory)
        return True

    def _free_memory(self) -> None:
        # A server that was started again meanwhile has forgotten the limit.
        if _ask(lambda: self._client.config_set("maxmemory", 0)) is None and not self.server.has_ended:
            self._later(0.05, self._free_memory)

    def _hit_server(self, injection: Injection, delay_s: float, undo: Undo) -> None:
        self._server_is_hit = True

        def heal() -> None:
            undo()
            self._server_is_hit = False
            self._watch_progress(injection)

        self._later(delay_s, heal)

    def _start_server(self) -> None:
        self.server.start()


def _ask(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except (RedisError, OSError):
        return None


def _crash_at(point: str) -> Callable[[Nemesis, Injection], bool]:
    def inject(nemesis: Nemesis, injection: Injection) -> bool:
        pids = nemesis.fleet.pids
        unarmed = [pid for pid in pids if not nemesis.fleet.arms.is_armed(pid)]
        nemesis.crash_at(nemesis.chance.choice(unarmed or pids), point, injection)
        return True

    return inject


FAULTS: Final[dict[str, Callable[[Nemesis, Injection], bool]]] = {
    "kill -9 worker": Nemesis.kill_worker,
    "SIGSTOP worker": Nemesis.pause_worker,
    "SIGTERM worker": Nemesis.stop_worker,
    "crash while stopping": Nemesis.stop_and_crash,
    **{f"crash {point}": _crash_at(point) for point in POINTS},
    "CLIENT KILL": Nemesis.kill_clients,
    "SCRIPT FLUSH": Nemesis.flush_scripts,
    "kill -9 server": Nemesis.kill_server,
    "SIGSTOP server": Nemesis.pause_server,
    "torn log": Nemesis.tear_log,
    "disk full": Nemesis.fill_disk,
    "memory full": Nemesis.fill_memory,
}
WORKER_FAULTS: Final = frozenset(name for name in FAULTS if "worker" in name or name.startswith("crash"))
SERVER_FAULTS: Final = frozenset(
    {"kill -9 server", "SIGSTOP server", "torn log", "disk full", "memory full", "CLIENT KILL", "SCRIPT FLUSH"}
)
WEIGHTS: Final = {
    "kill -9 worker": 30,
    "SIGSTOP worker": 12,
    "SIGTERM worker": 5,
    "crash while stopping": 3,
    **{f"crash {point}": 3 for point in POINTS},
    "CLIENT KILL": 10,
    "SCRIPT FLUSH": 2,
    "kill -9 server": 8,
    "SIGSTOP server": 6,
    "torn log": 4,
    "disk full": 3,
    "memory full": 4,
}


def draw_faults(chance: random.Random, number: int) -> list[str]:
    """A seeded list of faults in which every kind occurs, if there is room."""
    kinds = list(FAULTS)
    drawn = kinds[:number] + chance.choices(kinds, [WEIGHTS[kind] for kind in kinds], k=max(0, number - len(kinds)))
    chance.shuffle(drawn)
    return drawn

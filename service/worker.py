"""Worker processes: one in this process, or several under supervision; none outlives the command that started it."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec
from structlog.typing import FilteringBoundLogger

from service.app import STOP_SIGNALS, build_app
from service.entry import describe_fault
from service.observe import open_log
from service.settings import Settings

POLL_S: Final = 0.1
KILL_AFTER_S: Final = 5.0  # beyond the grace a worker gives itself
LONGEST_RESTART_DELAY_S: Final = 5.0
SETTLED_IN_S: Final = 10.0  # a worker that lived this long is not in a crash loop
PR_SET_PDEATHSIG: Final = 1


class Order(msgspec.Struct, frozen=True):
    """What a supervised worker gets to know on its standard input."""

    number: int
    parent: int
    settings: Settings


def run_worker(settings: Settings) -> int:
    """Work until a signal comes; the exit code, 0 after a clean stop."""
    if settings.workers > 1:
        return Supervisor(settings, open_log(settings.log, settings.log_level)).run()
    return run_here(settings)


def run_here(settings: Settings, number: int = 0, *, is_supervised: bool = False) -> int:
    """One worker in this process."""
    log = open_log(settings.log, settings.log_level)

    async def serve() -> None:
        app = build_app(settings, number=number, log=log)
        if is_supervised:
            watch_parent(app.exit)
        await app.run()

    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve())
    except Exception as error:
        log.critical("worker_failed", error=describe_fault(error), detail=_safe_text(error))
        return 1
    return 0


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where there is one, else what Python brings."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _safe_text(error: Exception) -> str:
    # The operating system's words name addresses and files; other messages may quote input.
    return str(error) if isinstance(error, OSError) else type(error).__name__


class Supervisor:
    """Keeps a number of worker processes running: restarts the dead, passes signals on, leaves nobody behind."""

    def __init__(self, settings: Settings, log: FilteringBoundLogger) -> None:
        self._settings = settings
        self._log = log
        self._children = [Child(number, settings) for number in range(settings.workers)]
        self._signals = 0

    def run(self) -> int:
        """Supervise until a signal comes and all workers have ended; 0 when each ended cleanly."""
        before = {number: signal.signal(number, self._pass_on) for number in STOP_SIGNALS}
        try:
            while not self._signals:
                for child in self._children:
                    self._tend(child)
                time.sleep(POLL_S)
            return self._end()
        finally:
            for child in self._children:
                child.kill()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _tend(self, child: "Child") -> None:
        code = child.exit_code()
        if code is not None:
            self._log.error("worker_died", pid=child.pid, exit_code=code, delay_s=child.plan_restart())
        if child.is_due():
            child.start()

    def _pass_on(self, *_: object) -> None:
        self._signals += 1
        for child in self._children:
            child.terminate()

    def _end(self) -> int:
        deadline = time.monotonic() + self._settings.grace_s + KILL_AFTER_S
        codes = [child.wait(deadline) for child in self._children]
        return int(any(codes))


class Child:
    """One supervised worker: its standard input stays open for as long as the parent lives."""

    def __init__(self, number: int, settings: Settings) -> None:
        self._order = Order(number, os.getpid(), settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._start_at = 0.0
        self._delay_s = POLL_S

    @property
    def pid(self) -> int:
        """The process id, 0 when there is none."""
        return self._process.pid if self._process else 0

    def is_due(self) -> bool:
        """Whether it is to be started now."""
        return self._process is None and time.monotonic() >= self._start_at

    def start(self) -> None:
        """Start the process and tell it what to do."""
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "service.worker"],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the supervisor, which passes it on once
        )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(self._order, enc_hook=str) + b"\n")
        self._process.stdin.flush()

    def exit_code(self) -> int | None:
        """The code of a process that has ended, negative for a signal."""
        return self._process.poll() if self._process else None

    def plan_restart(self) -> float:
        """Seconds until the next start: none to speak of, unless it keeps dying young."""
        lived = time.monotonic() - self._started
        self._delay_s = POLL_S if lived > SETTLED_IN_S else min(self._delay_s * 2, LONGEST_RESTART_DELAY_S)
        self._start_at = time.monotonic() + self._delay_s
        self._forget()
        return self._delay_s

    def terminate(self) -> None:
        """Ask it to stop."""
        if self._process:
            self._process.terminate()

    def wait(self, deadline: float) -> int:
        """The exit code, by force when the deadline passes."""
        if self._process is None:
            return 0
        try:
            return self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            return 1

    def kill(self) -> None:
        """End it at once, if it still runs."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._forget()

    def _forget(self) -> None:
        if self._process and self._process.stdin:
            self._process.stdin.close()
        self._process = None


def follow_order() -> int:
    """Run as a supervised worker, for as long as the supervisor lives."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order, dec_hook=lambda kind, text: kind(text))
    die_with_parent(order.parent)
    return run_here(order.settings, order.number, is_supervised=True)


def watch_parent(stop: Callable[[], None]) -> None:
    """Stop in order when the supervisor is gone, where the system does not kill at once: its end closes our input."""
    loop = asyncio.get_running_loop()

    def is_gone() -> None:
        loop.remove_reader(sys.stdin)
        stop()

    loop.add_reader(sys.stdin, is_gone)


def die_with_parent(parent: int) -> None:
    """Have the system kill this process when its parent dies, however that happens; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(follow_order())

"""Worker processes under supervision: the dead are replaced, and none outlives the command that started it."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
from structlog.typing import FilteringBoundLogger

from service.limits import die_with_parent, limit_memory, obey_deadlines
from service.observe import open_log
from service.settings import Settings

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
REFUSED: Final = 2  # exit code of a worker that would be refused again
POLL_S: Final = 0.1
KILL_AFTER_S: Final = 5.0  # beyond the grace a worker gives itself
HURRY_S: Final = 1.5  # for handing back after a second signal
LONGEST_RESTART_DELAY_S: Final = 5.0
AFTER_SIGNAL_S: Final = 0.5  # at most: what was killed by a snapshot is needed for the others
SETTLED_IN_S: Final = 10.0  # a worker that lived this long is not in a crash loop


class Program(msgspec.Struct, frozen=True):
    """The commands by which a supervisor starts a worker, and a worker the child for its suspects."""

    worker: tuple[str, ...] = (sys.executable, "-P", "-m", "service.worker")
    cell: tuple[str, ...] = (sys.executable, "-P", "-m", "service.isolate_child")


class Order(msgspec.Struct, frozen=True):
    """What a supervised worker gets to know on its standard input."""

    number: int
    parent: int
    settings: Settings
    program: Program


def run_worker(settings: Settings, program: Program = Program()) -> int:  # noqa: B008  frozen
    """Have ``settings.workers`` processes work until a signal comes; the exit code, 0 after a clean stop."""
    return Supervisor(settings, program, open_log(settings.log, settings.log_level)).run()


def run_here(
    settings: Settings,
    number: int = 0,
    *,
    is_supervised: bool = False,
    program: Program = Program(),  # noqa: B008  frozen
) -> int:
    """One worker in this process; a snapshot past its deadline ends it by SIGALRM."""
    from service.app import build_app
    from service.entry import describe_fault
    from service.errors import StartRefused

    log = open_log(settings.log, settings.log_level)
    obey_deadlines()
    limit_memory(settings.memory_mb)

    async def serve() -> None:
        app = build_app(settings, number=number, log=log, cell_command=program.cell)
        if is_supervised:
            watch_parent(app.exit)
        gc.freeze()  # what was imported stays: the collector need not walk it again and again
        await app.run()

    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve())
    except StartRefused as error:
        log.critical("worker_refused", detail=str(error))
        return REFUSED
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

    def __init__(self, settings: Settings, program: Program, log: FilteringBoundLogger) -> None:
        self._settings = settings
        self._log = log
        self._children = [Child(Order(n, os.getpid(), settings, program)) for n in range(settings.workers)]
        self._signals = 0
        self._is_refused = False

    def run(self) -> int:
        """Supervise until a signal comes and all workers have ended; 0 when each ended cleanly."""
        before = {number: signal.signal(number, self._note) for number in STOP_SIGNALS}
        try:
            while not self._signals and not self._is_refused:
                for child in self._children:
                    self._tend(child)
                # One alone may be refused for a while; those that work are left alone.
                self._is_refused = all(child.is_refused for child in self._children)
                time.sleep(POLL_S)
            return self._end()
        finally:
            for child in self._children:
                child.kill()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, *_: object) -> None:
        self._signals += 1

    def _tend(self, child: "Child") -> None:
        code = child.exit_code()
        if code == REFUSED:
            child.plan_restart(code)
        elif code is not None:
            event = "worker_timed_out" if code == -signal.SIGALRM else "worker_died"
            self._log.error(event, pid=child.pid, exit_code=code, delay_s=child.plan_restart(code))
        if child.is_due():
            child.start()

    def _end(self) -> int:
        """Pass every signal on and wait as long as the workers may take, after a second one not long."""
        passed_on, deadline = -1, float("inf")
        while any(child.is_running for child in self._children) and time.monotonic() < deadline:
            if self._signals > passed_on:
                passed_on = self._signals
                deadline = time.monotonic() + (HURRY_S if passed_on > 1 else self._settings.grace_s + KILL_AFTER_S)
                for child in self._children:
                    child.terminate()
            time.sleep(POLL_S / 4)
        return REFUSED if self._is_refused else int(not all(child.has_ended_well for child in self._children))


class Child:
    """One supervised worker: its standard input stays open for as long as the parent lives."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._start_at = 0.0
        self._delay_s = POLL_S
        self._was_refused = False

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
            self._order.program.worker,
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the supervisor, which passes it on once
        )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it died at once, and is tended like any other that dies
            self._process.stdin.write(msgspec.json.encode(self._order, enc_hook=str) + b"\n")
            self._process.stdin.flush()

    @property
    def is_running(self) -> bool:
        """Whether there is a process that has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_refused(self) -> bool:
        """Whether its last start was refused, and none has held since."""
        has_held = self.is_running and time.monotonic() - self._started > SETTLED_IN_S
        return self._was_refused and not has_held

    @property
    def has_ended_well(self) -> bool:
        """Whether it stopped as asked, or had not begun."""
        return not self.is_running and self.exit_code() in (None, 0, -signal.SIGTERM)

    def exit_code(self) -> int | None:
        """The code of a process that has ended, negative for a signal."""
        return self._process.poll() if self._process else None

    def plan_restart(self, code: int) -> float:
        """Seconds until the next start: none to speak of, unless it keeps dying young."""
        self._was_refused = code == REFUSED
        lived, most = time.monotonic() - self._started, AFTER_SIGNAL_S if code < 0 else LONGEST_RESTART_DELAY_S
        self._delay_s = POLL_S if lived > SETTLED_IN_S else min(self._delay_s * 2, most)
        self._start_at = time.monotonic() + self._delay_s
        self._forget()
        return self._delay_s

    def terminate(self) -> None:
        """Ask it to stop."""
        if self._process:
            self._process.terminate()

    def kill(self) -> None:
        """End it at once, if it still runs."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._forget()

    def _forget(self) -> None:
        if self._process and self._process.stdin:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process = None


def follow_order() -> int:
    """Run as a supervised worker, for as long as the supervisor lives."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order, dec_hook=lambda kind, text: kind(text))
    die_with_parent(order.parent)
    return run_here(order.settings, order.number, is_supervised=True, program=order.program)


def watch_parent(stop: Callable[[], None]) -> None:
    """Stop in order when the supervisor is gone, where the system does not kill at once: its end closes our input."""
    loop = asyncio.get_running_loop()

    def is_gone() -> None:
        loop.remove_reader(sys.stdin)
        stop()

    loop.add_reader(sys.stdin, is_gone)


if __name__ == "__main__":
    sys.exit(follow_order())

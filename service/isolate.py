"""Isolate: a suspect is pruned alone in a child process whose time and memory the system limits."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec

from contracts import Code, Refused, Snapshot
from service.entry import Desk
from service.isolate_child import HEADER, NO_MEMORY, Terms
from service.settlement import Entry, Settlement

CELL: Final = (sys.executable, "-P", "-m", "service.isolate_child")
START_WITHIN_S: Final = 60.0
BEYOND_DEADLINE_S: Final = 10.0  # for a child that is stopped, which no deadline ends
KEPT_IDLE_S: Final = 60.0


class CellUnavailable(Exception):
    """No child could be started, which says nothing about the suspect."""


class AttemptFailed(Exception):
    """The child did not survive the suspect: why, and which snapshot it was as far as that could be read."""

    def __init__(self, refused: Refused, snapshot: Snapshot | None) -> None:
        super().__init__(refused)
        self.refused = refused
        self.snapshot = snapshot


class Cell:
    """A child process for one suspect at a time: kept while suspects come, replaced when one has killed it."""

    def __init__(self, desk: Desk, deadline_s: float, memory_mb: int, command: tuple[str, ...] = CELL) -> None:
        self._terms = Terms(os.getpid(), desk, deadline_s, memory_mb)
        self._command = command
        self._child: Process | None = None
        self._is_busy = asyncio.Lock()
        self._closing: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Have a child ready, so that an attempt is not counted before it can be made."""
        async with self._in_use():
            await self._start()

    async def run(self, suspect: Entry) -> Settlement:
        """The suspect's settlement; ``AttemptFailed`` when it took the child with it or went over a limit."""
        async with self._in_use():
            child = await self._start()
            try:
                return await self._ask(child, suspect)
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        """End the child, whatever it is doing."""
        child, self._child = self._child, None
        if child:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    @asynccontextmanager
    async def _in_use(self) -> AsyncIterator[None]:
        async with self._is_busy:
            if self._closing:
                self._closing.cancel()
            try:
                yield
            finally:
                self._closing = asyncio.get_running_loop().call_later(KEPT_IDLE_S, self._let_go)

    def _let_go(self) -> None:
        # Forgotten first: a suspect that comes now must not be given to a child that is about to end.
        child, self._child = self._child, None
        if child:
            with suppress(ProcessLookupError):
                child.kill()

    async def _start(self) -> Process:
        if self._child and self._child.returncode is None:
            return self._child
        try:
            async with asyncio.timeout(START_WITHIN_S):
                self._child = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE)
                await _send(self._child, self._terms)
                await _receive(self._child)
                return self._child
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            await self.close()
            raise CellUnavailable(type(error).__name__) from error

    async def _ask(self, child: Process, suspect: Entry) -> Settlement:
        snapshot: Snapshot | None = None
        try:
            async with asyncio.timeout(self._terms.deadline_s + BEYOND_DEADLINE_S):
                await _send(child, suspect)
                snapshot = msgspec.msgpack.decode(await _receive(child), type=Snapshot | None)
                settlement = msgspec.msgpack.decode(await _receive(child), type=Settlement)
        except TimeoutError:
            raise AttemptFailed(Refused(Code.TIMED_OUT), snapshot) from None
        except (OSError, asyncio.IncompleteReadError):
            raise AttemptFailed(_verdict(await child.wait(), self._terms), snapshot) from None
        if settlement.refusal and settlement.refusal.code is Code.OUT_OF_MEMORY:
            raise AttemptFailed(Refused(Code.OUT_OF_MEMORY, _over(self._terms)), snapshot)
        return msgspec.structs.replace(settlement, entry=suspect)


def _verdict(exit_code: int, terms: Terms) -> Refused:
    if exit_code == -signal.SIGALRM:
        return Refused(Code.TIMED_OUT, f"not done after {terms.deadline_s:g} s")
    if exit_code == NO_MEMORY:
        return Refused(Code.OUT_OF_MEMORY, _over(terms))
    how = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
    return Refused(Code.CRASHED, f"an isolated attempt ended with {how}")


def _over(terms: Terms) -> str:
    return f"needs more than {terms.memory_mb} MB"


async def _send(child: Process, value: Any) -> None:
    assert child.stdin
    text = msgspec.msgpack.encode(value)
    child.stdin.write(HEADER.pack(len(text)))
    child.stdin.write(text)
    await child.stdin.drain()


async def _receive(child: Process) -> bytes:
    assert child.stdout
    (length,) = HEADER.unpack(await child.stdout.readexactly(HEADER.size))
    return await child.stdout.readexactly(length)

"""Work on all cores with results in order, bounded memory, and no result lost to a process that dies."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

CHUNKS_AHEAD: Final = 2  # per process: enough to keep it busy while the oldest chunk is awaited


class Parallel(Generic[Item, Outcome]):
    """Applies ``work`` to chunks of items in ``jobs`` processes; an item that kills its process gets ``on_crash``."""

    def __init__(
        self, work: Callable[[list[Item]], list[Outcome]], on_crash: Callable[[Item], Outcome], jobs: int
    ) -> None:
        self._work, self._on_crash, self._jobs = work, on_crash, jobs
        self._processes = _start(jobs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._processes.shutdown(cancel_futures=True)

    def run(self, chunks: Iterable[list[Item]]) -> Iterator[list[Outcome]]:
        """The outcomes of each chunk, in the order of the chunks; only a few are read ahead."""
        waiting: deque[tuple[list[Item], Future[list[Outcome]]]] = deque()
        for chunk in chunks:
            waiting.append((chunk, self._submit(chunk)))
            if len(waiting) > self._jobs * CHUNKS_AHEAD:
                yield self._outcomes(*waiting.popleft())
        while waiting:
            yield self._outcomes(*waiting.popleft())

    def _submit(self, chunk: list[Item]) -> Future[list[Outcome]]:
        try:
            return self._processes.submit(self._work, chunk)
        except BrokenProcessPool:
            self._processes = _start(self._jobs)
            return self._processes.submit(self._work, chunk)

    def _outcomes(self, chunk: list[Item], future: Future[list[Outcome]]) -> list[Outcome]:
        try:
            return future.result()
        except BrokenProcessPool:
            return list(self._one_by_one(chunk))

    def _one_by_one(self, chunk: list[Item]) -> Iterator[Outcome]:
        # A dead process takes whole chunks with it; only an item that kills a process of its own is at fault.
        remaining = deque(chunk)
        while remaining:
            with _start(1) as alone:
                try:
                    while remaining:
                        yield from alone.submit(self._work, [remaining[0]]).result()
                        remaining.popleft()
                except BrokenProcessPool:
                    yield self._on_crash(remaining.popleft())


def count_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(jobs: int) -> ProcessPoolExecutor:
    # Not forked: a progress bar's thread may hold a lock at that moment.
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

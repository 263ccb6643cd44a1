"""Named points of a worker at which a test can make it die: wrappers around the functions that stand there."""

import functools
import os
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final

import redis.asyncio.connection as connection

import pipeline
import service.app
import service.isolate
import service.reader
import service.reaper
import service.settle
from service.script import Script

DIED_AT_POINT: Final = 71  # exit codes of our own, so that any other death is a finding
DIED_OF_POISON: Final = 70

POINTS: Final = (
    "after_read",
    "before_prune",
    "after_prune",
    "before_settle",
    "before_send",
    "after_send",
    "after_reply",
    "after_settle",
    "after_claim",
    "after_attempt",
)
DRAIN_POINTS: Final = ("before_hand_back", "after_hand_back")


class Arms:
    """Files by which a test arms a running worker: named after its process, holding the point to die at."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory

    def arm(self, pid: int, point: str) -> None:
        """Make the worker die when it next comes to the point."""
        draft = self._directory / f"{pid}.draft"
        draft.write_text(point)
        draft.rename(self._directory / str(pid))

    def disarm(self, pid: int) -> None:
        """Forget a worker, dead or alive."""
        (self._directory / str(pid)).unlink(missing_ok=True)

    def is_armed(self, pid: int) -> bool:
        """Whether the worker still has a death before it."""
        return (self._directory / str(pid)).exists()

    def crossed(self, point: str) -> None:
        """Die here if this is the place; nobody is told, no buffer is flushed."""
        path = self._directory / str(os.getpid())
        if path.exists() and path.read_text() == point:
            path.unlink()
            os._exit(DIED_AT_POINT)


def install(arms: Arms) -> None:
    """Put every point in its place; call before the app is built."""
    _around(service.reader.Reader, "_read", arms, after="after_read", when=bool)
    _around(service.settle.Settler, "settle", arms, before="before_settle", after="after_settle")
    _around(service.settle.Settler, "_send", arms, before="before_send", after="after_reply")
    _around(service.reaper.Reaper, "_claim", arms, after="after_claim", when=bool)
    _around(service.isolate.Cell, "_ask", arms, before="after_attempt")
    _around(service.app, "hand_back", arms, before="before_hand_back", after="after_hand_back")
    _around_prune(arms)
    _after_settle_is_sent(arms)


def _always(_: object) -> bool:
    return True


def _around(
    owner: Any, name: str, arms: Arms, *, before: str = "", after: str = "", when: Callable[[Any], bool] = _always
) -> None:
    original: Callable[..., Awaitable[Any]] = getattr(owner, name)

    @functools.wraps(original)
    async def wrapped(*arguments: Any, **options: Any) -> Any:
        if before:
            arms.crossed(before)
        result = await original(*arguments, **options)
        if after and when(result):
            arms.crossed(after)
        return result

    setattr(owner, name, wrapped)


def _harmless() -> None:
    pass


def _crash() -> None:
    os._exit(DIED_OF_POISON)


def _hang() -> None:
    HOSTILE.match("a" * 40 + "!")  # one call into native code, which nothing but a signal ends


def _eat_memory() -> None:
    hoard: list[bytes] = []
    while True:
        hoard.append(bytes(2**26))


HOSTILE: Final = re.compile("(a+)+$")
POISONS: Final = {"poison-crash": _crash, "poison-hang": _hang, "poison-memory": _eat_memory}


def _around_prune(arms: Arms) -> None:
    original = pipeline.prune

    @functools.wraps(original)
    def wrapped(snapshot: Any, *arguments: Any, **options: Any) -> Any:
        arms.crossed("before_prune")
        POISONS.get(snapshot.workload, _harmless)()
        result = original(snapshot, *arguments, **options)
        arms.crossed("after_prune")
        return result

    pipeline.prune = wrapped


def _after_settle_is_sent(arms: Arms) -> None:
    sha = Script("settle").sha.encode()
    original = connection.AbstractConnection.send_packed_command

    async def wrapped(self: Any, command: bytes | str | Iterable[bytes], *rest: Any, **options: Any) -> None:
        parts = [command] if isinstance(command, bytes | str) else list(command)
        await original(self, parts, *rest, **options)  # type: ignore[arg-type]  # a list is as good as its parts
        if any(sha in part for part in parts if isinstance(part, bytes)):
            arms.crossed("after_send")

    connection.AbstractConnection.send_packed_command = wrapped  # type: ignore[method-assign]

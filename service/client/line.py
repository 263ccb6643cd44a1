"""Line: one connection for any number of commands at once, on which the server also says when a watched key changes.

Redis answers in the order of the commands, so whoever waits is found by counting. Nothing here blocks on the server:
a read that asks to be told of changes (``WATCHED``) is followed by a push on the same connection.
"""

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import ResponseError
from redis.maint_notifications import MaintNotificationsConfig

from service.lane import connection_options
from service.settings import SOCKET_TIMEOUT_S

Command = Sequence[Any]

WATCHED: Final[Command] = ("CLIENT", "CACHING", "YES")  # before a read: say when its key changes, once
_TRACK: Final[Command] = ("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP")
_PUSH: Final = object()


class Line:
    """Connects when it is used, and again after every fault; a fault is told to everybody who waits."""

    def __init__(self, url: str) -> None:
        options = connection_options() | {
            "socket_timeout": None,  # the reader waits for pushes; whoever asks has a time of his own
            "socket_connect_timeout": SOCKET_TIMEOUT_S,
            "protocol": 3,
            "maint_notifications_config": MaintNotificationsConfig(enabled=False),
        }
        self._pool: ConnectionPool = ConnectionPool.from_url(url, **options)
        self._connection: AbstractConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._writing = asyncio.Lock()
        self.changed = asyncio.Event()

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """The replies, errors among them; raises when the connection breaks or the server is silent for too long."""
        try:
            async with asyncio.timeout(SOCKET_TIMEOUT_S):
                answers = await self._write(commands)
                return [await answer for answer in answers]
        except TimeoutError:
            await self._break(Disconnected("the server is silent"))
            raise

    async def ask_strictly(self, commands: Sequence[Command]) -> list[Any]:
        """The replies; raises the first error among them."""
        replies = await self.ask(commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    async def close(self) -> None:
        """Hang up."""
        reader = self._reader
        await self._break(Disconnected("closed"))
        if reader:
            await reader

    async def _write(self, commands: Sequence[Command]) -> list[asyncio.Future[Any]]:
        async with self._writing:
            connection = self._connection or await self._connect()
            answers = self._expect(len(commands))
            try:
                await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
            except BaseException:
                await self._break(Disconnected("a command was sent in part"))
                raise
        return answers

    def _expect(self, count: int) -> list[asyncio.Future[Any]]:
        loop = asyncio.get_running_loop()
        answers = [loop.create_future() for _ in range(count)]
        self._waiting.extend(answers)
        return answers

    async def _connect(self) -> Any:
        connection: Any = self._pool.make_connection()  # type: ignore[no-untyped-call]
        connection._parser.set_invalidation_push_handler(self._hear)
        try:
            await connection.connect()
            await connection.send_command(*_TRACK, check_health=False)
            await connection.read_response()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._connection = connection
        self._reader = asyncio.create_task(self._read(connection))
        self.changed.set()  # nobody told us what happened in between
        return connection

    async def _hear(self, _: Any) -> object:
        self.changed.set()
        return _PUSH

    async def _read(self, connection: AbstractConnection) -> None:
        """Hand out replies until the connection breaks or is closed."""
        try:
            while True:
                reply = await self._next_reply(connection)
                if reply is not _PUSH:
                    self._answer(reply)
        except Exception as error:
            if self._connection is connection:
                await self._break(error)

    async def _next_reply(self, connection: AbstractConnection) -> Any:
        try:
            return await connection.read_response(disable_decoding=True, timeout=math.inf, push_request=True)
        except ResponseError as error:
            return error

    def _answer(self, reply: Any) -> None:
        answer = self._waiting.popleft()
        if not answer.done():
            answer.set_result(reply)

    async def _break(self, error: Exception) -> None:
        connection, self._connection = self._connection, None
        waiting, self._waiting = self._waiting, deque()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # so that asyncio does not complain where nobody waits any more
        self.changed.set()
        if connection:
            await connection.disconnect(nowait=True)

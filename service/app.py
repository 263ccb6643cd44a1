"""App: the one place where the parts of a worker are joined."""

import asyncio
import os
import secrets
import socket
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

from faststream import AckPolicy, FastStream
from faststream.redis import RedisBroker, StreamSub
from faststream.redis.message import BatchStreamMessage, RedisBatchStreamMessage
from faststream.redis.subscriber.usecases import StreamBatchSubscriber
from redis.asyncio import Redis
from redis.exceptions import RedisError
from structlog.typing import FilteringBoundLogger

from service.counters import Counters
from service.durability import Guard
from service.entry import Desk
from service.handler import Handler
from service.health import Health
from service.heartbeat import Heartbeat
from service.http import HttpServer, Routes
from service.isolate import CELL, Cell, CellUnavailable
from service.keys import GROUP, Keys
from service.lane import connect, connect_blocking, connection_options, hand_back, prepare, retire
from service.observe import open_log
from service.reader import Reader
from service.reaper import Reaper
from service.script import Script
from service.settings import Settings
from service.settle import Entry, Settler
from service.worker import STOP_SIGNALS

TURN_S: Final = 1.0
CANCEL_AGAIN_S: Final = 0.2
LAST_WORDS_S: Final = 2.0  # for giving entries back to a server that may be away


def build_app(
    settings: Settings,
    *,
    number: int = 0,
    log: FilteringBoundLogger | None = None,
    cell_command: tuple[str, ...] = CELL,
) -> FastStream:
    """A worker as a FastStream app: one batch subscriber fed by our reader, a reaper, and HTTP when a port is set."""
    if not settings.redis_url:
        raise ValueError("a worker needs settings.redis_url")
    consumer = consumer_name()
    log = (log or open_log(settings.log, settings.log_level)).bind(lane=settings.lane, worker=consumer)
    keys, health, counters = Keys(settings.lane), Health(), Counters()
    client = connect(settings.redis_url)
    reader = Reader(client, keys, consumer, settings, health, counters, log)
    settler = Settler(client, keys, settings, log, reader.recreate_groups, counters.unreplicated.inc)
    guard = Guard(client, settings.durability, health, counters, log)
    desk = Desk(consumer, keys.batch, settings.policy, settings.max_body_bytes, settings.attempts)
    cell = Cell(desk, settings.deadline_s, settings.memory_mb, cell_command)
    heartbeat = Heartbeat(connect_blocking(settings.redis_url), consumer, settings.claim_after_ms)
    handler = Handler(client, keys, desk, settings.deadline_s, settler, cell, heartbeat, health, counters, log)
    broker = RedisBroker(
        settings.redis_url,
        logger=None,  # type: ignore[arg-type]  # its lines quote exceptions, and those can quote input
        apply_types=False,
        graceful_timeout=settings.grace_s,
        **connection_options(),
    )
    subscriber = subscribe(broker, keys, consumer, handler, reader)
    app = FastStream(broker, logger=None)
    http = None
    if settings.http_port:
        routes = Routes(client, keys, health, counters)
        http = HttpServer(routes, settings.http_host, settings.http_port + number)
    reaper = Reaper(client, keys, consumer, settings, cell, health, counters, log)
    Worker(
        app, subscriber, client, keys, consumer, settings, health, guard, reaper, cell, heartbeat, http, log
    ).attach()
    return app


def consumer_name() -> str:
    """A name no other worker ever has: the boot part keeps a reused pid apart."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def subscribe(
    broker: RedisBroker, keys: Keys, consumer: str, handler: Handler, reader: Reader
) -> StreamBatchSubscriber:
    """FastStream's batch subscriber with our parser, fed by our reader."""
    subscriber = broker.subscriber(
        # From 0: were the group flushed away just now, FastStream would create it behind what has come since.
        stream=StreamSub(keys.snapshots, group=GROUP, consumer=consumer, batch=True, last_id="0"),
        ack_policy=AckPolicy.MANUAL,  # settling acknowledges
        no_reply=True,  # a producer-set reply_to is not obeyed
        parser=parse_batch,
        decoder=decode_batch,
        title=f"{keys.snapshots}:prune",
        description="Prune the snapshots of one read and settle them.",
    )
    subscriber(handler.handle)

    async def read(_: Any) -> None:
        await reader.feed(partial(consume, subscriber))

    # FastStream's own read knows neither two streams nor bytes, and gives up on NOGROUP; its loop and its drain stay.
    subscriber._get_msgs = read  # type: ignore[method-assign, assignment]
    return subscriber


async def consume(subscriber: StreamBatchSubscriber, stream: str, entries: list[Entry]) -> None:
    """Send entries through the subscriber, so that middlewares and the drain see them."""
    ids = [entry.id.encode() for entry in entries]
    data: Any = entries
    await subscriber.consume(BatchStreamMessage(type="bstream", channel=stream, message_ids=ids, data=data))


async def parse_batch(raw: BatchStreamMessage) -> RedisBatchStreamMessage:
    """The read as one message; bodies are looked at one by one in the handler, so none can spoil its batch."""
    body: Any = raw["data"]
    return RedisBatchStreamMessage(
        raw_message=raw, body=body, correlation_id=raw["message_ids"][0].decode(), consumer=_NO_CONSUMER, group=None
    )


async def decode_batch(message: RedisBatchStreamMessage) -> Any:
    """The entries as they are."""
    return message.body


_NO_CONSUMER: Any = None  # acknowledging is the settle script's


class Worker:
    """The life of a worker: waits for its server, reads, and stops in order."""

    def __init__(
        self,
        app: FastStream,
        subscriber: StreamBatchSubscriber,
        client: Redis,
        keys: Keys,
        consumer: str,
        settings: Settings,
        health: Health,
        guard: Guard,
        reaper: Reaper,
        cell: Cell,
        heartbeat: Heartbeat,
        http: HttpServer | None,
        log: FilteringBoundLogger,
    ) -> None:
        self._app = app
        self._subscriber = subscriber
        self._client = client
        self._keys = keys
        self._consumer = consumer
        self._grace_s = settings.grace_s
        self._health = health
        self._guard = guard
        self._reaper = reaper
        self._cell = cell
        self._heartbeat = heartbeat
        self._http = http
        self._log = log
        self._tasks: list[asyncio.Task[None]] = []
        self._is_hurried = asyncio.Event()

    def attach(self) -> None:
        """Hook into the app's start and stop."""
        self._app.on_startup(self.start)
        self._app.after_startup(self.begin)
        self._app.on_shutdown(self.drain)

    async def start(self) -> None:
        """Serve health, wait for the server, create what is missing; signals are ours from here on."""
        for number in STOP_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        if self._http:
            self._spawn(self._http.listen())
        self._spawn(self._turn())
        self._spawn(self._warm_up())
        await prepare(self._client, self._keys, self._guard.check, self._log)

    async def begin(self) -> None:
        """Start the reaper beside the subscriber that FastStream has started."""
        self._heartbeat.start()
        self._spawn(self._guard.watch())
        self._spawn(self._reaper.run(partial(consume, self._subscriber)))
        self._log.info("worker_started")

    def stop(self) -> None:
        """Finish what has begun; asked a second time, stop waiting for it."""
        if self._health.is_draining:
            self._is_hurried.set()
        self._health.is_draining = True
        self._app.exit()

    async def drain(self) -> None:
        """Let the entry in hand settle, hand back what was only read, leave no name behind."""
        self._health.is_draining = True
        await self._cell.close()  # an attempt can be made again by any worker
        finishing = asyncio.create_task(self._subscriber.stop())
        hurry = asyncio.create_task(self._is_hurried.wait())
        await asyncio.wait({finishing, hurry}, timeout=self._grace_s, return_when=asyncio.FIRST_COMPLETED)
        stopped = await _cancel([finishing, hurry, *self._subscriber.tasks, *self._tasks])
        self._heartbeat.stop()
        await self._cell.close()
        handed_back = 0
        with suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                handed_back = await hand_back(self._client, self._keys, self._consumer)
                await retire(self._client, self._keys, Script("retire"), self._consumer)
        await self._client.aclose()
        self._log.info("worker_stopped", count=handed_back)
        for fault in stopped:
            raise fault

    async def _warm_up(self) -> None:
        # A worker often starts because another one died: then what that one left is waiting to be tried.
        with suppress(CellUnavailable):
            await self._cell.start()

    async def _turn(self) -> None:
        while True:
            self._health.has_turned()
            await asyncio.sleep(TURN_S)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._end_with)
        self._tasks.append(task)

    def _end_with(self, task: asyncio.Task[None]) -> None:
        # A worker without its reaper or its health would only look alive.
        if not task.cancelled() and task.exception():
            self._app.exit()


async def _cancel(tasks: list[asyncio.Task[Any]]) -> list[Exception]:
    """End all tasks; the faults of those that had failed before."""
    open_ones = set(tasks)
    while open_ones:
        for task in open_ones:
            task.cancel()
        # Again and again: a cancellation that meets a dying connection can come out as the connection's error.
        _, open_ones = await asyncio.wait(open_ones, timeout=CANCEL_AGAIN_S)
    return [fault for task in tasks if not task.cancelled() and isinstance(fault := task.exception(), Exception)]

"""HTTP: whether a worker lives and works, what it has done, and what the streams hold.

Every worker serves its own: worker number n of a command listens on `SECATEUR_HTTP_PORT` + n, so that a scrape never
meets a random process. Nothing is served when the port is 0.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator, MutableMapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Final

import uvicorn
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from contracts import encode
from service.asyncapi import describe_lane
from service.counters import Counters
from service.health import Health
from service.keys import GROUP, Keys
from service.preflight import listen
from service.script import Script

CENSUS_WITHIN_S: Final = 2.0
TEXT: Final = b"text/plain; version=0.0.4; charset=utf-8"
JSON: Final = b"application/json"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
Answer = tuple[int, bytes, bytes]


class Routes:
    """The ASGI app: four paths, read only."""

    def __init__(self, client: Redis, keys: Keys, health: Health, counters: Counters) -> None:
        self._client = client
        self._keys = keys
        self._health = health
        self._counters = counters
        self._census = Script("census")
        self._paths: dict[str, Callable[[], Awaitable[Answer]]] = {
            "/live": self.live,
            "/ready": self.ready,
            "/metrics": self.metrics,
            "/asyncapi.json": self.asyncapi,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = self._paths.get(scope["path"])
        if answer is None:
            status, kind, body = 404, TEXT, b"not found\n"
        elif scope["method"] not in ("GET", "HEAD"):
            status, kind, body = 405, TEXT, b"read only\n"
        else:
            status, kind, body = await answer()
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def live(self) -> Answer:
        """200 while the event loop turns."""
        return (200, TEXT, b"live\n") if self._health.is_live else (503, TEXT, b"the event loop does not turn\n")

    async def ready(self) -> Answer:
        """200 while snapshots are being read."""
        if self._health.is_ready:
            return 200, TEXT, b"ready\n"
        return 503, TEXT, b"draining\n" if self._health.is_draining else b"no recent read\n"

    async def metrics(self) -> Answer:
        """What this worker counted, and what the streams hold as far as the server answers."""
        return 200, TEXT, generate_latest(self._counters.registry) + generate_latest(await self._gauges())

    async def asyncapi(self) -> Answer:
        """The streams and their schemas."""
        return 200, JSON, encode(describe_lane(self._keys, version("secateur")))

    async def _gauges(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        is_up = Gauge("secateur_redis_up", "Whether the server answered this scrape.", registry=registry)
        ready = Gauge("secateur_ready", "Whether this worker is reading.", registry=registry)
        ready.set(self._health.is_ready)
        names = ("snapshots", "batch", "pruned", "metrics", "dead")
        streams = [getattr(self._keys, name) for name in names]
        try:
            async with asyncio.timeout(CENSUS_WITHIN_S):
                counts = await self._census.call(self._client, streams, [GROUP])
        except (RedisError, OSError, TimeoutError):
            is_up.set(0)
            return registry
        is_up.set(1)
        self._set_streams(registry, dict(zip(names, counts, strict=True)))
        return registry

    @staticmethod
    def _set_streams(registry: CollectorRegistry, counts: dict[str, list[int]]) -> None:
        length = Gauge("secateur_stream_length", "Entries in a stream.", ["stream"], registry=registry)
        pending = Gauge("secateur_pending", "Entries read and not settled.", ["stream"], registry=registry)
        unread = Gauge("secateur_unread", "Entries nobody has read.", ["stream"], registry=registry)
        for name, (entries, _, held) in counts.items():
            length.labels(name).set(entries)
            if name in ("snapshots", "batch"):
                pending.labels(name).set(held)
                unread.labels(name).set(entries - held)
        taken = sum(added - entries for entries, added, _ in (counts["snapshots"], counts["batch"]))
        balance = Gauge("secateur_balance", "Entries gone without a metrics row; not 0 means loss.", registry=registry)
        balance.set(taken - counts["metrics"][1])


class HttpServer:
    """The routes on a port, inside the worker's own loop."""

    def __init__(self, routes: Routes, host: str, port: int) -> None:
        self._routes = routes
        self._address = (host, port)

    def listen(self) -> Coroutine[Any, Any, None]:
        """Take the address, and serve there until cancelled; ``StartRefused`` when it cannot be had."""
        return self._serve(listen(*self._address))

    async def _serve(self, listener: socket.socket) -> None:
        config = uvicorn.Config(self._routes, lifespan="off", log_config=None, access_log=False)
        with listener:
            await _Server(config).serve(sockets=[listener])


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals are the worker's: it drains, and ends this server last.
        yield

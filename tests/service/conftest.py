"""What the tests of the service share: a lane on the real server, and its entries as a worker would read them."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import redis

from contracts import Metrics, Pruned
from service.entry import Desk, prune_entry
from service.keys import GROUP, Keys
from service.lane import connect, create_groups
from service.observe import open_log
from service.reader import read_entries
from service.settings import Settings, load_settings
from service.settle import Entry, Settlement, Settler


class Lane:
    """A lane with a worker's tools, one step at a time."""

    def __init__(self, client: Any, settings: Settings) -> None:  # Any: the stubs know no raw replies
        self.client = client
        self.settings = settings
        self.keys = Keys(settings.lane)
        self.desk = Desk("tester", self.keys.batch, settings.policy, settings.max_body_bytes, settings.attempts)
        self.settler = self.settler_over(client)

    def settler_over(self, client: Any) -> Settler:
        return Settler(client, self.keys, self.settings, open_log("json", "error"), self.create_groups)

    async def create_groups(self) -> None:
        await create_groups(self.client, self.keys)

    async def add(self, stream: str = "", **fields: Any) -> None:
        await self.client.xadd(stream or self.keys.snapshots, fields)

    async def read(self, stream: str = "") -> list[Entry]:
        stream = stream or self.keys.snapshots
        reply = await self.client.xreadgroup(GROUP, "tester", {stream: ">"}, count=100)
        return [entry for name, rows in (reply or {}).items() for entry in read_entries(name.decode(), rows)]

    async def take(self, body: Any, stream: str = "", **fields: Any) -> Settlement:
        """Publish one body, read it back and prune it."""
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.add(stream, __data__=text, **fields)
        (entry,) = await self.read(stream)
        return prune_entry(entry, self.desk)

    async def pending(self) -> int:
        return sum([(await self.client.xpending(stream, GROUP))["pending"] for stream in self.keys.inputs])

    async def results(self, inbox: str = "") -> list[Pruned]:
        rows = await self.client.xrange(self.keys.results(inbox))
        return [msgspec.json.decode(fields[b"__data__"], type=Pruned) for _, fields in rows]

    async def rows(self) -> list[Metrics]:
        rows = await self.client.xrange(self.keys.metrics)
        return [msgspec.json.decode(fields[b"__data__"], type=Metrics) for _, fields in rows]

    async def dead(self) -> list[dict[bytes, bytes]]:
        return [fields for _, fields in await self.client.xrange(self.keys.dead)]


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the caller's environment reaches a command."""
    for name in [name for name in os.environ if name.startswith("SECATEUR_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def only_the_server_is_set(redis_url: str, no_settings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command finds the test's server and no other setting."""
    monkeypatch.setenv("SECATEUR_REDIS_URL", redis_url)


@pytest.fixture
def client(redis_url: str, only_the_server_is_set: None) -> Iterator["redis.Redis"]:
    """A client of the server that a command will use too."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def settings(redis_url: str) -> Settings:
    return load_settings({"SECATEUR_REDIS_URL": redis_url, "SECATEUR_MAX_BODY_BYTES": "100000"})


@pytest_asyncio.fixture
async def lane(settings: Settings, redis_url: str) -> AsyncIterator[Lane]:
    async with connect(redis_url) as client:
        lane = Lane(client, settings)
        await lane.create_groups()
        yield lane


def snapshot(**fields: Any) -> dict[str, Any]:
    """A small valid snapshot."""
    return {"conversation_id": "c-1", "messages": [{"role": "user", "content": "hello"}]} | fields

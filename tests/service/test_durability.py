"""Durability: each mode against what servers really say, and a worker that refuses to promise more than it gets."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
import redis

from service.counters import Counters
from service.durability import (
    UNKNOWN,
    DurabilityRefused,
    Facts,
    Findings,
    Guard,
    has_known_fault,
    inspect,
    judge,
    read_version,
)
from service.health import Health
from service.lane import connect, create_groups
from service.observe import open_log
from service.settings import Durability
from service.settle import Settler, Verdict
from tests.faults.server import Server, running_server
from tests.integration.workers import wait_until
from tests.service.conftest import Lane, snapshot

BEST = Facts((7, 2, 4), True, "always", "no", "noeviction", 1)
MODES: tuple[Durability, ...] = ("fast", "durable", "replicated")


def changed(**facts: object) -> Facts:
    return msgspec.structs.replace(BEST, **facts)


@pytest.mark.parametrize("mode", MODES)
def test_a_server_with_everything_is_good_for_every_mode(mode: Durability) -> None:
    assert judge(mode, BEST) == Findings()


@pytest.mark.parametrize(
    ("facts", "refusing"),
    [
        pytest.param(changed(version=(6, 2, 14)), MODES, id="old"),
        pytest.param(changed(eviction="allkeys-lru"), MODES, id="evicts-all"),
        pytest.param(changed(eviction="volatile-ttl"), MODES, id="evicts-markers"),
        pytest.param(changed(is_append_only=False), MODES[1:], id="no-log"),
        pytest.param(changed(fsync="everysec"), MODES[1:], id="everysec"),
        pytest.param(changed(fsync=UNKNOWN), MODES[1:], id="unseen-fsync"),
        pytest.param(changed(skips_fsync_on_rewrite="yes"), MODES[1:], id="no-fsync-on-rewrite"),
        pytest.param(changed(replicas=0), MODES[2:], id="no-replica"),
        pytest.param(None, MODES[1:], id="unseen"),
    ],
)
def test_a_mode_is_refused_where_the_server_does_not_give_it(facts: Facts | None, refusing: tuple[str, ...]) -> None:
    assert tuple(mode for mode in MODES if judge(mode, facts).refusals) == refusing


@pytest.mark.parametrize("facts", [changed(is_append_only=False), changed(fsync="no"), changed(eviction=UNKNOWN), None])
def test_fast_goes_on_with_a_weak_server_and_says_so(facts: Facts | None) -> None:
    findings = judge("fast", facts)

    assert not findings.refusals
    assert findings.warnings


@pytest.mark.parametrize(
    ("text", "version"), [("7.0.15", (7, 0, 15)), ("7.2", (7, 2)), ("9.1.2-rc1", (9, 1, 2)), ("", ()), ("x", ())]
)
def test_versions_compare_as_numbers(text: str, version: tuple[int, ...]) -> None:
    assert read_version(text) == version


@pytest.mark.parametrize(
    ("product", "version", "is_faulty"),
    [
        ("redis", (7, 0, 15), False),
        ("redis", (7, 2, 0), True),
        ("redis", (8, 6, 2), True),
        ("redis", (8, 6, 3), False),
        ("valkey", (7, 2, 4), False),
    ],
)
def test_versions_with_a_known_fault_are_told_apart(product: str, version: tuple[int, ...], is_faulty: bool) -> None:
    assert has_known_fault(Facts(version, True, "always", "no", "noeviction", 1, product)) is is_faulty
    assert not has_known_fault(None)


async def test_the_facts_are_those_of_the_running_server(redis_url: str) -> None:
    async with connect(redis_url) as client:
        facts = await inspect(client)

    assert facts
    assert facts.version >= (7, 0)
    assert (facts.is_append_only, facts.fsync, facts.skips_fsync_on_rewrite) == (True, "everysec", "no")
    assert (facts.eviction, facts.replicas) == ("noeviction", 0)


async def test_a_server_that_still_loads_its_log_is_waited_for(tmp_path: Path) -> None:
    with running_server(tmp_path / "server", appendfsync="everysec") as server:
        with server.client(socket_timeout=30) as client:
            client.eval("for i = 1, 300000 do redis.call('SET', 'k' .. i, 'some text to be read again') end", 0)
        server.kill()
        server.spawn()
        waited, facts = 0, None
        async with connect(server.url) as client:
            while facts is None:  # INFO says while it loads that there is no log
                try:
                    facts = await inspect(client)
                except redis.ConnectionError:
                    waited += 1

    assert facts.is_append_only
    assert waited


async def test_what_a_user_may_not_ask_is_unknown(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as admin:
        admin.acl_setuser("blind", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all", "-config", "-info"])
        admin.acl_setuser("dim", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all", "-config"])
    address = redis_url.rpartition("@")[2]
    async with connect(f"redis://blind:pw@{address}") as client:
        assert await inspect(client) is None
    async with connect(f"redis://dim:pw@{address}") as client:
        facts = await inspect(client)
    assert facts
    assert facts.fsync == UNKNOWN


async def test_a_server_that_gets_worse_is_noticed_and_the_worker_is_no_longer_ready(redis_url: str) -> None:
    health, counters = Health(), Counters()
    health.has_heard()
    async with connect(redis_url) as client:
        await client.config_set("appendfsync", "always")
        try:
            guard = Guard(client, "durable", health, counters, open_log("json", "error", io.StringIO()))
            await guard.check()
            assert health.is_ready
            await client.config_set("appendfsync", "everysec")
            with pytest.raises(DurabilityRefused, match="appendfsync is everysec, not always"):
                await guard.check()
            guard._note(judge("durable", await inspect(client)))
        finally:
            await client.config_set("appendfsync", "everysec")

    assert not health.is_ready
    assert counters.durability.labels("durable")._value.get() == 0


def test_a_worker_that_cannot_keep_its_mode_says_why_and_exits_with_2(redis_url: str) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SECATEUR_")}
    worker = subprocess.run(
        [sys.executable, "-m", "service.cli", "worker"],
        env=environ | {"SECATEUR_REDIS_URL": redis_url, "SECATEUR_DURABILITY": "durable", "SECATEUR_LOG": "json"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert worker.returncode == 2
    assert worker.stderr.count("worker_refused") == 1
    assert "appendfsync is everysec, not always" in worker.stderr


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """A server and its replica."""
    with ExitStack() as stack:
        first = stack.enter_context(running_server(tmp_path / "first", **{"repl-diskless-sync-delay": "0"}))
        second = stack.enter_context(running_server(tmp_path / "second", replicaof=f"127.0.0.1 {first.port}"))
        client = stack.enter_context(first.client())
        wait_until(lambda: "online" in str(client.info("replication").get("slave0")), "the replica in step")
        yield first, second


async def test_a_replicated_settle_waits_for_a_replica_and_says_when_there_is_none(
    pair: tuple[Server, Server], lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.settle.WAIT_MS", 20_000)  # a slow machine is no lost replica
    first, second = pair
    settings = msgspec.structs.replace(lane.settings, durability="replicated")
    unconfirmed: list[int] = []
    async with connect(first.url) as client:
        facts = await inspect(client)
        assert not judge("replicated", facts).refusals
        far = Lane(client, settings)
        await create_groups(client, far.keys)
        log = open_log("json", "error", io.StringIO())
        settler = Settler(client, far.keys, settings, log, far.create_groups, unconfirmed.append)

        assert await settler.settle([await far.take(snapshot())]) == [Verdict.OK]
        with second.client() as replica:
            assert replica.xlen(far.keys.pruned) == 1
        assert unconfirmed == []

        second.kill()
        monkeypatch.setattr("service.settle.WAIT_MS", 200)
        assert await settler.settle([await far.take(snapshot())]) == [Verdict.OK]
        assert unconfirmed == [1]

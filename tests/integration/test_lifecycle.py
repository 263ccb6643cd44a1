"""The life of a worker: it waits for its server, outlives its outages, stops in order and leaves nobody behind."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from redis import Redis

from service.keys import GROUP
from tests.faults.server import Server
from tests.integration.workers import (
    KEYS,
    WORKER,
    Process,
    check_results,
    pending,
    publish,
    results,
    running,
    snapshot,
    unsettled,
    wait_until,
)

SLOW = [sys.executable, "-m", "tests.integration.poison_worker"]
QUICK = {"claim_after_ms": "500", "block_ms": "200"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, not yet started."""
    server = Server(tmp_path / "server")
    yield server
    server.kill()


def family(process: Process) -> list[psutil.Process]:
    parent = psutil.Process(process.pid)
    return [parent, *parent.children(recursive=True)]


def cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_worker_waits_for_its_server(server: Server, tmp_path: Path) -> None:
    with running(WORKER, server.url, tmp_path / "log", **QUICK) as worker:
        wait_until(lambda: worker.said("waiting_for_redis"), "a word that it waits")
        server.start()
        with server.client() as redis:
            publish(redis, [snapshot(0)])
            wait_until(lambda: len(results(redis)) == 1, "the first result")

        assert not worker.said("worker_died")


def test_a_worker_idles_while_its_server_is_down_and_is_back_within_five_seconds(
    server: Server, tmp_path: Path
) -> None:
    server.start()
    with running(WORKER, server.url, tmp_path / "log", **QUICK) as worker:
        with server.client() as redis:
            publish(redis, [snapshot(0)])
            wait_until(lambda: len(results(redis)) == 1, "the first result")
        workers = family(worker)
        server.kill()
        wait_until(lambda: worker.said("redis_unreachable"), "a word that the server is gone")
        before, down_s = cpu_seconds(workers), 3.0
        time.sleep(down_s)
        spent = cpu_seconds(workers) - before
        server.start()
        with server.client() as redis:
            publish(redis, [snapshot(1)])
            begun = time.monotonic()
            wait_until(lambda: len(results(redis)) == 2, "a result after the outage")

        assert time.monotonic() - begun < 5
        assert spent / down_s < 0.2
        assert not any(is_gone(process) for process in workers)
        assert not worker.said("worker_died")


def test_a_flushed_server_is_reported_and_served_on(redis_url: str, tmp_path: Path) -> None:
    with Redis.from_url(redis_url) as redis, running(WORKER, redis_url, tmp_path / "log", **QUICK) as worker:
        wait_until(lambda: worker.said("worker_started"), "the start")
        redis.flushall()
        publish(redis, [snapshot(number) for number in range(5)])
        wait_until(lambda: len(results(redis)) == 5, "what was added after the flush")

        assert worker.said("group_lost")
        assert worker.terminate() == 0
        assert not worker.said("worker_died")


def test_sigterm_finishes_what_has_begun_and_hands_back_what_was_only_read(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAWDLE_S", "0.4")
    names = {f"s-{number}" for number in range(12)}
    with Redis.from_url(redis_url) as redis:
        publish(redis, [snapshot(number, workload="dawdle") for number in range(12)])
        with running(SLOW, redis_url, tmp_path / "log", claim_after_ms="60000", grace_s="10") as worker:
            wait_until(lambda: redis.xlen(KEYS.pruned) >= 1, "some progress")
            held = pending(redis)
            begun = time.monotonic()
            assert worker.terminate() == 0

            assert held > 1
            assert time.monotonic() - begun < 10
            assert worker.said("worker_stopped")
        assert 0 < redis.xlen(KEYS.pruned) < 12
        rows = redis.xpending_range(KEYS.snapshots, GROUP, "-", "+", 100)
        assert all(row["time_since_delivered"] > 3_600_000 for row in rows)  # anybody's, at once
        with running(WORKER, redis_url, tmp_path / "log", claim_after_ms="60000"):
            wait_until(lambda: unsettled(redis) == 0, "the rest by another worker")
        findings = check_results(redis, names)
        assert not findings.lost
        assert not findings.doubled


def test_a_second_sigterm_ends_a_busy_worker_at_once(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAWDLE_S", "60")
    with Redis.from_url(redis_url) as redis:
        publish(redis, [snapshot(0, workload="dawdle")])
        with running(SLOW, redis_url, tmp_path / "log", deadline_s="120", grace_s="100") as worker:
            wait_until(lambda: redis.xlen(KEYS.snapshots) and pending_or_none(redis) == 1, "the work begun")
            workers = family(worker)
            worker.send(signal.SIGTERM)
            time.sleep(0.3)
            begun = time.monotonic()
            worker.send(signal.SIGTERM)
            worker.wait()

            assert time.monotonic() - begun < 10
        assert pending(redis) == 1  # nothing is lost: the next worker claims it
        wait_until(lambda: all(is_gone(process) for process in workers), "the end of every process")


def pending_or_none(redis: Redis) -> int:
    groups = redis.xinfo_groups(KEYS.snapshots)
    return int(groups[0]["pending"]) if groups else 0


def test_a_dead_worker_is_replaced_and_a_dead_supervisor_leaves_no_orphans(redis_url: str, tmp_path: Path) -> None:
    with Redis.from_url(redis_url) as redis:
        with running(SLOW, redis_url, tmp_path / "log", workers="2", **QUICK) as worker:
            wait_until(lambda: worker.count("worker_started") == 2, "two workers")
            first, _ = psutil.Process(worker.pid).children()
            first.send_signal(signal.SIGKILL)
            wait_until(lambda: worker.count("worker_started") == 3, "a third in place of the dead one")
            publish(redis, [snapshot(0, workload="crash"), snapshot(1)])
            wait_until(lambda: redis.xlen(KEYS.dead) == 1, "an attempt in a child of a worker, and three more")
            everybody = family(worker)
            os.kill(worker.pid, signal.SIGKILL)
            wait_until(lambda: all(is_gone(process) for process in everybody), "the end of every process")

        assert len(everybody) >= 3
        assert [result["snapshot_id"] for result in results(redis)] == ["s-1"]

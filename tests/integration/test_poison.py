"""Poison: a snapshot that crashes, hangs or eats memory is dead-lettered alone, and everything else gets its result."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from service.keys import GROUP
from tests.integration.workers import (
    KEYS,
    balance,
    check_results,
    dead_letters,
    publish,
    results,
    running,
    snapshot,
    unsettled,
    wait_until,
)

POISONED = [sys.executable, "-m", "tests.integration.poison_worker"]
QUICK = {"claim_after_ms": "250", "block_ms": "200", "deadline_s": "1", "memory_mb": "768", "attempts": "4"}


POISONS = {3: ("crash", b"crashed"), 9: ("hang", b"timed_out"), 14: ("eat", b"out_of_memory")}


def test_poisons_are_dead_lettered_after_four_isolated_attempts_and_alone(redis_url: str, tmp_path: Path) -> None:
    healthy = ("default", b"")
    bodies = [snapshot(number, workload=POISONS.get(number, healthy)[0]) for number in range(20)]
    with Redis.from_url(redis_url) as redis:
        publish(redis, bodies)
        with running(POISONED, redis_url, tmp_path / "log", **QUICK) as worker:
            wait_until(lambda: unsettled(redis) == 0, "every entry settled")
            assert worker.terminate() == 0

        letters = {letter[b"__data__"]: (letter[b"_code"], letter[b"_attempts"]) for letter in dead_letters(redis)}
        assert letters == {bodies[number]: (code, b"4") for number, (_, code) in POISONS.items()}
        innocents = {f"s-{number}" for number in range(20) if number not in POISONS}
        assert sorted(result["snapshot_id"] for result in results(redis)) == sorted(innocents)
        assert all(redis.exists(KEYS.done(f"s-{number}")) for number in POISONS)  # a resend is recognised
        assert balance(redis) == 0
        assert redis.hlen(KEYS.attempts) == 0
        assert worker.count("attempt_failed") >= 12


def test_others_keep_flowing_while_a_poison_hangs(redis_url: str, tmp_path: Path) -> None:
    with Redis.from_url(redis_url) as redis:
        publish(redis, [snapshot(0, workload="hang")])
        settings = QUICK | {"deadline_s": "2", "attempts": "1", "workers": "2"}
        with running(POISONED, redis_url, tmp_path / "log", **settings) as worker:
            wait_until(lambda: worker.said("worker_timed_out"), "the end of the worker that read it")
            wait_until(lambda: redis.hlen(KEYS.attempts) == 1, "an isolated attempt")
            publish(redis, [snapshot(number) for number in range(1, 200)])
            begun = time.monotonic()
            wait_until(lambda: redis.xlen(KEYS.pruned) == 199, "all the others")

            assert time.monotonic() - begun < 20
            wait_until(lambda: unsettled(redis) == 0, "the poison settled")
        assert [letter[b"_code"] for letter in dead_letters(redis)] == [b"timed_out"]


def test_a_long_work_is_not_taken_from_a_worker_that_lives(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAWDLE_S", "3")
    owners: set[bytes] = set()
    with Redis.from_url(redis_url) as redis:

        def is_settled() -> bool:
            rows: Any = (
                redis.xpending_range(KEYS.snapshots, GROUP, "-", "+", 10) if redis.exists(KEYS.snapshots) else []
            )
            owners.update(row["consumer"] for row in rows)
            return unsettled(redis) == 0

        publish(redis, [snapshot(0, workload="dawdle"), snapshot(1)])
        redis.xgroup_create(KEYS.snapshots, GROUP, id="0")
        settings = QUICK | {"claim_after_ms": "1000", "deadline_s": "30", "workers": "2"}
        with running(POISONED, redis_url, tmp_path / "log", **settings) as worker:
            wait_until(is_settled, "every entry settled")
            assert worker.terminate() == 0

        findings = check_results(redis, {"s-0", "s-1"})
        assert not findings.lost
        assert not findings.doubled
        assert len(owners) == 1
        assert redis.xinfo_consumers(KEYS.snapshots, GROUP) == []

"""Kill -9: workers die in the middle of their work, and still every snapshot has exactly one result."""

import random
import sys
from pathlib import Path

from redis import Redis

from tests.integration.workers import (
    KEYS,
    WORKER,
    Findings,
    Process,
    balance,
    check_results,
    dead_letters,
    pending,
    publish,
    snapshot,
    unsettled,
    wait_until,
)

SEED = 20_261_118
CLAIM_AFTER_MS = "400"
NAIVE_CLAIM_AFTER_MS = "1500"  # a naive worker sends no heartbeat, and a slow machine is not the fault to be found
NAIVE = [sys.executable, "-m", "tests.integration.naive_worker"]


def run_and_kill(
    command: list[str], url: str, log: Path, *, snapshots: int, kills: int, claim_after_ms: str = CLAIM_AFTER_MS
) -> Findings:
    """Drain a backlog with two workers of which one is killed again and again, each time after some progress."""
    schedule = random.Random(SEED)
    workers = 2
    names = [f"s-{number}" for number in range(snapshots)]
    with Redis.from_url(url) as redis:
        publish(redis, [snapshot(number) for number in range(snapshots)])
        pool = [start(command, url, log, claim_after_ms) for _ in range(workers)]
        try:
            for _ in range(kills):
                goal = redis.xlen(KEYS.pruned) + schedule.randint(1, snapshots // (2 * kills))
                wait_until(lambda: redis.xlen(KEYS.pruned) >= goal or not unsettled(redis), "progress")  # noqa: B023  at once
                victim = schedule.randrange(workers)
                pool[victim].kill()
                pool[victim] = start(command, url, log, claim_after_ms)
            wait_until(lambda: unsettled(redis) == 0, "every entry settled")
            return check_results(redis, set(names))
        finally:
            for process in pool:
                process.kill()


def run_naive(order: str, url: str, tmp_path: Path) -> Findings:
    command = [*NAIVE, order]
    return run_and_kill(command, url, tmp_path / "log", snapshots=400, kills=6, claim_after_ms=NAIVE_CLAIM_AFTER_MS)


def start(command: list[str], url: str, log: Path, claim_after_ms: str = CLAIM_AFTER_MS) -> Process:
    # Small batches, so that a kill meets many states of the work.
    return Process(command, url, log, claim_after_ms=claim_after_ms, batch_count="16", block_ms="200")


def test_no_result_is_lost_or_doubled_when_workers_are_killed(redis_url: str, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    findings = run_and_kill(WORKER, redis_url, tmp_path / "log", snapshots=3_000, kills=8)

    assert findings == Findings(lost=set(), doubled=set())
    with Redis.from_url(redis_url) as redis:
        assert balance(redis) == 0
        assert pending(redis) == 0
        assert dead_letters(redis) == []
        assert redis.hlen(KEYS.attempts) == 0


def test_the_check_finds_what_publish_then_ack_doubles(redis_url: str, tmp_path: Path) -> None:
    findings = run_naive("publish-then-ack", redis_url, tmp_path)

    assert findings.doubled
    assert not findings.lost


def test_the_check_finds_what_ack_then_publish_loses(redis_url: str, tmp_path: Path) -> None:
    findings = run_naive("ack-then-publish", redis_url, tmp_path)

    assert findings.lost
    assert not findings.doubled

"""Faults of the server: a torn log, full memory, a full disk, a flush, a trim, a wrong clock, a failover."""

import os
import random
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from redis.exceptions import RedisError

from service.entry import Desk, prune_entry
from service.keys import GROUP
from service.lane import connect, create_groups
from service.observe import open_log
from service.reader import read_entries
from service.settings import load_settings
from service.settle import Settler, Verdict
from tests.faults.check import Findings, read_balance
from tests.faults.fleet import held_by, is_reading, still_pending
from tests.faults.report import Report, Row
from tests.faults.scene import Scene, playing
from tests.faults.server import UNLIMITED, Server, running_server
from tests.faults.traffic import KEYS, snapshots
from tests.integration.workers import wait_until

pytestmark = pytest.mark.faults

MULTI = b"*1\r\n$5\r\nMULTI\r\n"
HOUR_S = 3600
SYNCED_WITHIN_S = 2.0
SETTLED_IN_WHOLE = {(0, 0, 1, 0, 1), (0, 0, 0, 1, 1)}  # unread, pending, results, letters, rows
NOT_SETTLED = (1, 1, 0, 0, 0)


def row(fault: str, injected: int, findings: Findings, seconds: list[float] | None = None, note: str = "") -> Row:
    return Row(fault, injected, len(findings.lost), len(findings.doubled), note=note).recovering(seconds or [])


async def settle_one(server: Server, body: bytes) -> Verdict:
    """Add, read, prune and settle one snapshot without a worker."""
    settings = load_settings({"SECATEUR_REDIS_URL": server.url})
    async with connect(server.url) as client:

        async def groups() -> None:
            await create_groups(client, KEYS)

        await groups()
        await client.xadd(KEYS.snapshots, {"__data__": body})
        reply: Any = await client.xreadgroup(GROUP, "tester", {KEYS.snapshots: ">"}, count=1)
        ((name, rows),) = reply.items()
        (entry,) = read_entries(name.decode(), rows)
        desk = Desk("tester", KEYS.batch, settings.policy, settings.max_body_bytes, settings.attempts)
        settler = Settler(client, KEYS, settings, open_log("json", "error"), groups)
        (verdict,) = await settler.settle([prune_entry(entry, desk)])
        return verdict


def state_after(directory: Path, log: bytes, name: str) -> tuple[int, ...]:
    """What a server makes of a log: unread, pending, results, letters, rows."""
    shutil.rmtree(directory / "copy", ignore_errors=True)
    shutil.copytree(directory / "server", directory / "copy")
    (directory / "copy" / "appendonlydir" / name).write_bytes(log)
    with running_server(directory / "copy") as server, server.client() as client:
        pending: Any = client.xpending(KEYS.snapshots, GROUP)
        lengths = [client.xlen(stream) for stream in (KEYS.snapshots, KEYS.pruned, KEYS.dead, KEYS.metrics)]
        return (lengths[0], pending["pending"], *lengths[1:])


@pytest.mark.parametrize("fate", ["result", "unknown_policy"])
async def test_a_log_torn_inside_a_settle_holds_all_of_it_or_nothing(
    tmp_path: Path, seed: int, is_short: bool, report: Report, fate: str
) -> None:
    body = next(sent.body for sent in snapshots(seed, 10_000, {}) if sent.fate == fate)
    with running_server(tmp_path / "server") as server:
        assert await settle_one(server, body) in (Verdict.OK, Verdict.DEAD)
        name = server.log_file().name
        log = server.log_file().read_bytes()
    start = log.rindex(MULTI)
    places = range(start, len(log))
    cuts = random.Random(seed).sample(places, 30) if is_short else list(places)

    states = [state_after(tmp_path, log[:cut], name) for cut in cuts]

    report.add(Row(f"log torn inside a settle ({fate})", len(states)))
    assert set(states) == {NOT_SETTLED}
    assert state_after(tmp_path, log, name) in SETTLED_IN_WHOLE


def test_full_memory_turns_producers_away_and_drains(server: Server, tmp_path: Path, seed: int, report: Report) -> None:
    with playing(server, tmp_path, seed, count=2_000, workers=1) as scene:
        scene.progress()
        scene.client.config_set("maxmemory", 1)
        time.sleep(0.2)
        scene.wait_until(lambda: scene.unsettled() == 0, "the backlog drained on a full server")
        with pytest.raises(RedisError, match="maxmemory"):
            scene.client.xadd(KEYS.snapshots, {"__data__": b"{}"})
        scene.client.config_set("maxmemory", 0)
        seconds = scene.progress()
        findings = scene.finish()

    report.add(row("maxmemory reached", 1, findings, [seconds]))
    assert findings.faults() == {}


def count_said(scene: Scene, event: str) -> int:
    return scene.fleet.log.read_text().count(f'"event":"{event}"')


def test_a_flush_is_a_stated_loss_that_is_reported_and_survived(
    server: Server, tmp_path: Path, seed: int, is_short: bool, report: Report
) -> None:
    times, seconds = (2 if is_short else 10), []
    with playing(server, tmp_path, seed, count=300) as scene:
        workers = scene.fleet.pids
        # A worker that is still starting creates the group without a word.
        scene.wait_until(lambda: all(is_reading(scene.client, pid) for pid in workers), "all workers reading")
        for number in range(times):
            scene.progress()
            scene.forget()
            alerts = count_said(scene, "group_lost")
            scene.client.flushall()
            seconds.append(scene.wait_until(lambda: count_said(scene, "group_lost") > alerts, "an alert"))  # noqa: B023
            scene.produce(snapshots(seed + number, 300))
        findings = scene.finish()
        assert scene.fleet.pids == workers

    report.add(row("FLUSHALL", times, findings, seconds, note="loses what the server held"))
    assert findings.faults() == {}  # of what was sent after the flush
    assert max(seconds) < 10


def test_a_trim_of_unread_entries_shows_in_the_balance(
    server: Server, tmp_path: Path, seed: int, report: Report
) -> None:
    with playing(server, tmp_path, seed, count=200, workers=1) as scene:
        scene.wait_until(lambda: not scene.producer.is_alive() and scene.unsettled() == 0, "all settled")
        assert read_balance(scene.client) == 0
        scene.fleet.kill(scene.fleet.pids[0])
        for sent in snapshots(seed, 119, prefix="trimmed"):
            scene.client.xadd(KEYS.snapshots, {"__data__": sent.body})
        scene.client.xtrim(KEYS.snapshots, maxlen=0, approximate=False)

        assert read_balance(scene.client) == 119
        scene.produce(snapshots(seed, 50, prefix="later"))
        findings = scene.finish()

    report.add(row("XTRIM of unread entries", 1, findings, note="119 gone, balance 119"))
    assert findings.faults() == {"balance": 119}


def test_entries_trimmed_under_a_dead_worker_are_reported(
    server: Server, tmp_path: Path, seed: int, report: Report
) -> None:
    with playing(server, tmp_path, seed, count=40, workers=1, claim_after_ms="500") as scene:
        (worker,) = scene.fleet.pids
        scene.fleet.arms.arm(worker, "after_read")
        wait_until(lambda: worker not in scene.fleet.pids, "the worker's death")
        held = held_by(scene.client, worker)
        scene.producer.join()
        scene.client.xtrim(KEYS.snapshots, maxlen=0, approximate=False)
        seconds = scene.wait_until(lambda: count_said(scene, "entry_vanished") >= len(held), "an alert for each")
        scene.wait_until(lambda: not still_pending(scene.client, held), "nothing left pending")

    report.add(Row("XTRIM of pending entries", len(held), note="all reported").recovering([seconds]))
    assert held


def preload(name: str, directory: Path) -> str:
    """A library of ours to be loaded into a server, by the name of its source."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler or os.uname().sysname != "Linux":
        pytest.skip("what the system tells a server can be changed only on Linux and with a C compiler")
    library = directory / f"{name}.so"
    source = Path(__file__).with_name(f"{name}.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return str(library)


def test_a_clock_that_jumps_an_hour_doubles_and_loses_nothing(tmp_path: Path, seed: int, report: Report) -> None:
    offset = tmp_path / "offset"
    offset.write_bytes(struct.pack("q", 0))
    environ = {"LD_PRELOAD": preload("clock", tmp_path), "CLOCK_OFFSET_FILE": str(offset)}
    with running_server(tmp_path / "server", environ=environ) as server, playing(server, tmp_path, seed) as scene:
        seconds = []
        for jump_s in (HOUR_S, -HOUR_S, 0):
            scene.progress(100)
            with offset.open("r+b") as file:
                file.write(struct.pack("q", jump_s))
            scene.wait_until(lambda: abs(scene.client.time()[0] - time.time() - jump_s) < 60, "the jump")  # noqa: B023
            seconds.append(scene.progress(100))
        findings = scene.finish()

    report.add(row("clock jumps by an hour", 3, findings, seconds))
    assert findings.faults() == {}


@contextmanager
def powered(tmp_path: Path, fsync: str) -> Iterator[tuple[Server, Callable[[], None]]]:
    """A server, and what cuts its power: of its log only that is left which the disk has confirmed."""
    size = tmp_path / "synced"
    size.write_bytes(struct.pack("q", 0))
    environ = {"LD_PRELOAD": preload("synced", tmp_path), "SYNCED_SIZE_FILE": str(size)}
    config = {"appendfsync": fsync, "auto-aof-rewrite-percentage": "0"}

    with running_server(tmp_path / "server", environ=environ, **config) as server:

        def cut() -> None:
            server.kill()
            (confirmed,) = struct.unpack("q", size.read_bytes())
            log = server.log_file()
            assert 0 < confirmed <= log.stat().st_size
            os.truncate(log, confirmed)
            server.start()

        yield server, cut


def test_a_power_cut_loses_nothing_where_every_write_is_synced(
    tmp_path: Path, seed: int, is_short: bool, report: Report
) -> None:
    times, seconds, chance = (3 if is_short else 20), [], random.Random(seed)
    with powered(tmp_path, "always") as (server, cut), playing(server, tmp_path, seed) as scene:
        for _ in range(times):
            scene.progress()
            time.sleep(chance.uniform(0, 0.2))
            cut()
            seconds.append(scene.progress())
        findings = scene.finish()

    report.add(row("power cut, every write synced", times, findings, seconds))
    assert findings.faults() == {}


def test_a_power_cut_loses_two_seconds_at_most_where_writes_are_synced_every_second(
    tmp_path: Path, seed: int, is_short: bool, report: Report
) -> None:
    times, seconds, exposed = (2 if is_short else 10), [], set[str]()
    with powered(tmp_path, "everysec") as (server, cut), playing(server, tmp_path, seed) as scene:
        for _ in range(times):
            scene.progress()
            safe = set(scene.producer.fates)
            time.sleep(SYNCED_WITHIN_S)
            cut()
            exposed |= set(scene.producer.fates) - safe
            seconds.append(scene.progress())
        findings = scene.finish()

    note = "synced every second: only what was sent within 2 s of a cut"
    report.add(row("power cut", times, findings, seconds, note))
    assert findings.lost <= exposed
    assert not findings.doubled


def test_a_failover_to_a_lagging_replica_loses_nothing_that_was_confirmed(
    tmp_path: Path, seed: int, is_short: bool, report: Report
) -> None:
    times, seconds = (2 if is_short else 10), []
    with running_server(tmp_path / "server-0") as primary, playing(primary, tmp_path, seed, replicas=1) as scene:
        try:
            for number in range(1, times + 1):
                replica = start_replica(tmp_path / f"server-{number}", scene.server)
                scene.progress(100)
                replica.pause()  # it falls behind what producers and workers do meanwhile
                time.sleep(0.2)
                fail_over(scene.server, replica)
                scene.server = replica
                seconds.append(scene.progress(50))
            scene.producer.replicas = 0  # the last one stands alone
            findings = scene.finish()
        finally:
            scene.server.kill()

    report.add(row("failover to a lagging replica", times, findings, seconds))
    assert findings.faults() == {}


def start_replica(directory: Path, primary: Server) -> Server:
    """A server that follows another and has caught up."""
    replica = Server(directory, replicaof=f"127.0.0.1 {primary.port}").start()
    with replica.client() as client:
        deadline = time.monotonic() + 30
        while client.info("replication")["master_link_status"] != "up":
            assert time.monotonic() < deadline, "the replica never caught up"
            time.sleep(0.05)
    return replica


def fail_over(primary: Server, replica: Server) -> None:
    """The primary dies, and the replica takes its place under its address."""
    primary.kill()
    replica.resume()
    with replica.client() as client:
        client.replicaof("NO", "ONE")
        client.config_set("port", primary.port)
    replica.port = primary.port


@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_a_full_disk_stops_the_work_and_loses_nothing(tmp_path: Path, seed: int, report: Report, fsync: str) -> None:
    with running_server(tmp_path / "server", appendfsync=fsync) as server, playing(server, tmp_path, seed) as scene:
        scene.progress(100)
        server.limit_files(server.log_file().stat().st_size)
        time.sleep(2.0)
        assert server.has_ended == (fsync == "always")  # as documented: it will not go on without its log
        if server.has_ended:
            server.start()
        else:
            server.limit_files(UNLIMITED)
        seconds = scene.progress(50)
        findings = scene.finish()
        assert scene.fleet.deaths == {}

    report.add(row(f"log cannot grow, appendfsync {fsync}", 1, findings, [seconds]))
    assert findings.faults() == {}


@contextmanager
def small_disk(directory: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own, where this user may mount one."""
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(directory)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a full disk needs the right to mount a small one")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def fill(path: Path) -> None:
    """Write until there is no room left."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_a_disk_without_room_loses_nothing(tmp_path: Path, seed: int, report: Report) -> None:
    with (
        small_disk(tmp_path / "disk", 24) as disk,
        running_server(disk / "server", appendfsync="everysec") as server,
        playing(server, tmp_path, seed) as scene,
    ):
        scene.progress(100)
        fill(disk / "ballast")
        time.sleep(2.0)
        (disk / "ballast").unlink()
        seconds = scene.progress(20)
        findings = scene.finish()

    report.add(row("no space left on the disk", 1, findings, [seconds]))
    assert findings.faults() == {}


def test_workers_wait_idly_for_a_server_that_is_away_and_go_on_when_it_returns(
    server: Server, tmp_path: Path, seed: int, is_short: bool, report: Report
) -> None:
    away_s = 8.0 if is_short else 60.0
    with playing(server, tmp_path, seed) as scene:
        scene.progress(100)
        workers = [psutil.Process(pid) for pid in scene.fleet.pids]
        server.kill()
        time.sleep(2.0)
        before = sum(sum(worker.cpu_times()[:2]) for worker in workers)
        time.sleep(away_s - 2.0)
        spent = sum(sum(worker.cpu_times()[:2]) for worker in workers) - before
        server.start()
        seconds = scene.progress(20)
        findings = scene.finish()
        assert scene.fleet.deaths == {}

    report.add(row(f"server away for {away_s:.0f} s", 1, findings, [seconds]))
    assert findings.faults() == {}
    assert seconds < 5.0
    assert spent / len(workers) / (away_s - 2.0) < 0.05

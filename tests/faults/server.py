"""A server of the test's own, on its own port and directory: killed, paused, and started again on the same log."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from service.embedded import _find_binary

START_WITHIN_S: Final = 30.0
UNLIMITED: Final = -1


class Server:
    """One server process after the other on the same port and the same append-only log."""

    def __init__(self, directory: Path, *, binary: str = "", environ: dict[str, str] | None = None, **config: str):
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.port = free_port()
        self._binary = binary or _find_binary()
        self._environ = environ or {}
        self._config = {"appendonly": "yes", "appendfsync": "always", "save": ""} | config
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The process that serves now."""
        assert self._process
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended by itself or by force."""
        return self._process is None or self._process.poll() is not None

    def client(self, **options: Any) -> Redis:
        """A client that never sends a command twice behind our back."""
        options = {"socket_timeout": 3.0, "socket_connect_timeout": 3.0} | options
        return Redis.from_url(self.url, retry=Retry(NoBackoff(), 0), retry_on_error=[], **options)

    def spawn(self) -> None:
        """Start the process without waiting for an answer."""
        options = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self.directory)} | self._config
        # Signals stay as Python has them: a server that meets its file size limit sees a failed write, not a signal.
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binary, *(part for name, value in options.items() for part in (f"--{name}", value))],
                env=os.environ | self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                restore_signals=False,
            )

    def start(self) -> "Server":
        """Start the process and wait until it has loaded its log."""
        self.spawn()
        deadline = time.monotonic() + START_WITHIN_S
        while not self.answers():
            assert not self.has_ended, f"the server ended at its start: see {self.directory / 'server.log'}"
            assert time.monotonic() < deadline, "the server never answered"
            time.sleep(0.01)
        return self

    def answers(self) -> bool:
        """Whether it serves commands now."""
        try:
            with self.client(socket_timeout=0.5) as client:
                return bool(client.ping())
        except (RedisError, OSError):
            return False

    def kill(self) -> None:
        """End it as a power cut of the process would: no last words, no flush."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Stop the process in its tracks; connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def limit_files(self, most_bytes: int) -> None:
        """Let no file grow beyond this size: what a full disk does to the log, without a disk."""
        psutil.Process(self.pid).rlimit(psutil.RLIMIT_FSIZE, (most_bytes, UNLIMITED))

    def log_file(self) -> Path:
        """The part of the append-only log that is being written."""
        return max(
            (self.directory / "appendonlydir").glob("*.incr.aof"), key=lambda path: int(path.name.split(".")[-3])
        )


@contextmanager
def running_server(directory: Path, **options: Any) -> Iterator[Server]:
    """A server that does not outlive the block, even when it is paused."""
    server = Server(directory, **options)
    try:
        yield server.start()
    finally:
        server.kill()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def debian_server() -> str | None:
    """Debian's redis-server, where it is installed."""
    return shutil.which("redis-server")

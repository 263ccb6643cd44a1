"""The server a command talks to: settings, the embedded server when none is set, and errors in one line."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from service.cli.problem import Problem

if TYPE_CHECKING:
    from redis import Redis

    from service.settings import Settings

ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def read_settings(**chosen: str | None) -> "Settings":
    """The settings of the environment, with what the command line chose in place of it."""
    from service.settings import SettingsError, load_settings

    overrides = {f"SECATEUR_{name.upper()}": value for name, value in chosen.items() if value is not None}
    try:
        return load_settings(dict(os.environ) | overrides)
    except SettingsError as error:
        raise Problem(str(error)) from error


@contextmanager
def reach_server(settings: "Settings") -> Iterator[str]:
    """The URL of the server: the one that is set, else the embedded one for as long as this is open."""
    from service.embedded import ServerUnavailable, serve

    try:
        with _restoring_signals(), serve(settings.redis_url, settings.data_dir) as url:
            try:
                yield url
            finally:
                _ignore_signals()  # a second one, while the server is being stopped, would leave it behind
    except ServerUnavailable as error:
        raise Problem(str(error)) from error


@contextmanager
def open_client(url: str, patience_s: int = 0) -> Iterator["Redis"]:
    """A client that never repeats a command by itself; its errors become one line.

    A server that is away at first is waited for, as long as ``patience_s`` says.
    """
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    try:
        client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0))
    except ValueError as error:
        raise Problem(f"SECATEUR_REDIS_URL: {error}") from error
    try:
        with client:
            _wait_for_answer(client, url, patience_s)
            yield client
    except redis.RedisError as error:
        raise Problem(f"the server at {shown(url)}: {error}") from error


def _wait_for_answer(client: "Redis", url: str, patience_s: int) -> None:
    from redis.exceptions import RedisError

    from service.lane import is_denied
    from service.settle import growing_delays, is_passing

    deadline = time.monotonic() + patience_s
    for tries, delay in enumerate(growing_delays()):
        try:
            client.ping()
            return
        except RedisError as error:
            if not patience_s or is_denied(error) or not is_passing(error):
                raise
            if time.monotonic() > deadline:
                raise Problem(f"the server at {shown(url)}: waited {patience_s} s in vain ({error})") from error
        if not tries:
            print(f"secateur: waiting up to {patience_s} s for the server at {shown(url)}", file=sys.stderr)
        time.sleep(delay)


def shown(url: str) -> str:
    """The URL without its password, and without its options, which may hold one too."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@contextmanager
def _restoring_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)

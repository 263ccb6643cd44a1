"""The server a command talks to: settings, the embedded server when none is set, and errors in one line."""

import os
import signal
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
def open_client(url: str) -> Iterator["Redis"]:
    """A client that never repeats a command by itself; its errors become one line."""
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    try:
        client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0))
    except ValueError as error:
        raise Problem(f"SECATEUR_REDIS_URL: {error}") from error
    try:
        with client:
            client.ping()
            yield client
    except redis.RedisError as error:
        raise Problem(f"the server at {shown(url)}: {error}") from error


def shown(url: str) -> str:
    """The URL without its password, and without its options, which may hold one too."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


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

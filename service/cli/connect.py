"""The server a command talks to: settings, the embedded server when none is set, and errors in one line."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from service.cli.problem import Problem

if TYPE_CHECKING:
    from redis import Redis

    from service.settings import Settings


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
        with serve(settings.redis_url, settings.data_dir) as url:
            yield url
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
    """The URL without its password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

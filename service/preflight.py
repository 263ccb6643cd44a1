"""Preflight: what a user has to mend before any worker can work, found before one is started."""

from contextlib import suppress
from typing import Final

from redis.exceptions import RedisError

from service.errors import StartRefused
from service.lane import DENIED, connect_blocking
from service.settings import Settings

ANSWER_WITHIN_S: Final = 2.0


def check_start(settings: Settings) -> None:
    """Raise ``StartRefused`` where waiting would not help; a server that is away is left to the workers."""
    if settings.redis_url:
        _check_login(settings.redis_url)


def _check_login(url: str) -> None:
    with connect_blocking(url, within_s=ANSWER_WITHIN_S) as client, suppress(RedisError, OSError):
        try:
            client.ping()
        except DENIED as error:
            raise StartRefused(f"the server refuses the login: {error}") from None

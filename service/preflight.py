"""Preflight: what a user has to mend before any worker can work, found before one is started."""

import socket
from typing import Final

from redis.exceptions import RedisError

from service.errors import StartRefused
from service.lane import connect_blocking, is_denied
from service.settings import Settings

ANSWER_WITHIN_S: Final = 2.0


def check_start(settings: Settings) -> None:
    """Raise ``StartRefused`` where waiting would not help; a server that is away is left to the workers."""
    if settings.redis_url:
        _check_login(settings.redis_url)
    if settings.http_port:
        for number in range(settings.workers):
            listen(settings.http_host, settings.http_port + number).close()


def listen(host: str, port: int) -> socket.socket:
    """A socket at this address; ``StartRefused`` when it cannot be had."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise StartRefused(f"SECATEUR_HTTP_HOST, SECATEUR_HTTP_PORT: no listening at {host}:{port}: {reason}") from None


def _check_login(url: str) -> None:
    with connect_blocking(url, within_s=ANSWER_WITHIN_S) as client:
        try:
            client.ping()
        except (RedisError, OSError) as error:
            if is_denied(error):
                raise StartRefused(f"no login at the server: {error}") from None

"""Lane: the server side of a worker's streams: connecting, groups, and giving back what was read and not begun."""

import asyncio
from collections.abc import Awaitable, Callable
from ssl import SSLCertVerificationError
from typing import Any, Final

import redis
import redis.retry
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError
from structlog.typing import FilteringBoundLogger

from service.errors import StartRefused
from service.keys import GROUP, Keys
from service.script import Script
from service.settings import SOCKET_TIMEOUT_S
from service.settle import UNREACHABLE, growing_delays, is_passing

CLAIMABLE_AT_ONCE_MS: Final = 24 * 3600 * 1000  # an idle time that no CLAIM_AFTER_MS reaches
GONE_AFTER_MS: Final = 3600 * 1000
HANDED_BACK_AT_ONCE: Final = 20_000  # more than any read


def connection_options() -> dict[str, Any]:
    """How every connection of a worker behaves: a command that failed is never sent again behind our back."""
    return {"socket_timeout": SOCKET_TIMEOUT_S, "retry": Retry(NoBackoff(), 0), "retry_on_error": []}


def connect_blocking(url: str, within_s: float = SOCKET_TIMEOUT_S) -> redis.Redis:
    """A client for a thread of its own."""
    retry = redis.retry.Retry(NoBackoff(), 0)
    return redis.Redis.from_url(url, socket_timeout=within_s, retry=retry, retry_on_error=[])


def connect(url: str) -> Redis:
    """A client that reads entries as they are, fields given twice included."""
    client: Redis = Redis.from_url(url, **connection_options())
    for command in ("XREADGROUP", "XAUTOCLAIM"):
        client.set_response_callback(command, _as_it_came)
    return client


def _as_it_came(response: Any, **_: Any) -> Any:
    return response


async def prepare(client: Redis, keys: Keys, check: Callable[[], Awaitable[None]], log: FilteringBoundLogger) -> None:
    """Return once the server answers, has passed the check and has the groups, however long that takes.

    ``StartRefused`` when it answers that it will not: the login, a right or the kind of a key is wrong.
    """
    for delay in growing_delays():
        try:
            await check()
            await create_groups(client, keys)
            return
        except (*UNREACHABLE, ResponseError) as error:
            if is_denied(error) or not is_passing(error):
                raise StartRefused(f"the server refuses: {error}") from None
            log.warning("waiting_for_redis", error=type(error).__name__, delay_s=round(delay, 3))
        await asyncio.sleep(delay)


def is_denied(error: BaseException) -> bool:
    """Whether the login or the certificate is refused; redis-py counts both among the broken connections."""
    if isinstance(error, (AuthenticationError, AuthorizationError)):
        return True
    return any(isinstance(cause, SSLCertVerificationError) for cause in (error, error.__cause__, error.__context__))


async def create_groups(client: Redis, keys: Keys) -> None:
    """Make sure that both inputs have our group; a new one starts at the oldest entry."""
    for stream in keys.inputs:
        try:
            await client.xgroup_create(stream, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise


async def hand_back(client: Redis, keys: Keys, consumer: str) -> int:
    """Make everything this consumer holds claimable at once; the number of entries."""
    handed_back = 0
    for stream in keys.inputs:
        held = await client.xpending_range(stream, GROUP, "-", "+", HANDED_BACK_AT_ONCE, consumername=consumer)
        if held:
            await make_claimable(client, stream, consumer, [entry["message_id"] for entry in held])
        handed_back += len(held)
    return handed_back


async def make_claimable(client: Redis, stream: str, consumer: str, ids: list[Any]) -> None:
    """Let the next sweep of any worker take these entries of ``consumer``."""
    await client.xclaim(stream, GROUP, consumer, 0, ids, idle=CLAIMABLE_AT_ONCE_MS, justid=True)


async def retire(client: Redis, keys: Keys, script: Script, consumer: str = "") -> None:
    """Forget ``consumer`` and all that have been silent for an hour, unless entries are still pending under them."""
    for stream in keys.inputs:
        try:
            await script.call(client, [stream], [GROUP, consumer, GONE_AFTER_MS])
        except RedisError:
            return  # it is tidying up only; the next sweep comes

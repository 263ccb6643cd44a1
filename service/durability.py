"""Durability: what the operator asks the server to promise, held against how the server is really configured."""

import asyncio
import re
from typing import Any, Final

from msgspec import Struct
from redis.asyncio import Redis
from redis.exceptions import BusyLoadingError, NoPermissionError, RedisError, ResponseError
from structlog.typing import FilteringBoundLogger

from service.counters import Counters
from service.errors import StartRefused
from service.health import Health
from service.settings import Durability
from service.settle import REPLICAS

LEAST_VERSION: Final = (7, 0)
FAULTY_REDIS: Final = ((7, 2), (8, 6, 2))  # first and last with CVE-2026-23479: blocked clients can crash the server
CHECK_EVERY_S: Final = 60.0
UNKNOWN: Final = "unknown"
ASKED: Final = ("appendfsync", "no-appendfsync-on-rewrite")


class Facts(Struct, frozen=True):
    """How a server is configured, as far as it tells; ``unknown`` where this user may not ask."""

    version: tuple[int, ...]
    is_append_only: bool
    fsync: str
    skips_fsync_on_rewrite: str
    eviction: str
    replicas: int
    product: str = "redis"


class Findings(Struct, frozen=True):
    """What keeps a worker from starting, and what it says loudly and goes on with."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class DurabilityRefused(StartRefused):
    """The server does not give what the mode promises; the message says in one line what is missing."""


async def inspect(client: Redis) -> Facts | None:
    """How the server is configured; nothing when this user may not ask at all."""
    info: dict[str, Any] = {}
    try:
        for part in ("server", "persistence", "memory", "replication"):
            info |= await client.info(part)
    except NoPermissionError:
        return None
    if info.get("loading"):
        raise BusyLoadingError("the server does not say yet how it will run")
    config = await _config(client)
    return Facts(
        version=read_version(str(info.get("redis_version", ""))),
        is_append_only=str(info.get("aof_enabled", 0)) == "1",
        fsync=config.get("appendfsync", UNKNOWN),
        skips_fsync_on_rewrite=config.get("no-appendfsync-on-rewrite", UNKNOWN),
        eviction=str(info.get("maxmemory_policy", UNKNOWN)),
        replicas=sum(1 for name, value in info.items() if re.fullmatch(r"slave\d+", name) and _is_online(value)),
        product=str(info.get("server_name", "redis")),
    )


async def _config(client: Redis) -> dict[str, str]:
    try:
        reply: dict[Any, Any] = await client.config_get(*ASKED)
    except ResponseError:
        return {}  # not allowed to this user, or renamed by the host
    return {_text(name): _text(value) for name, value in reply.items()}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _is_online(replica: Any) -> bool:
    return isinstance(replica, dict) and replica.get("state") == "online"


def read_version(text: str) -> tuple[int, ...]:
    """A version as numbers that compare; empty when it has none."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in found.groups() if part) if found else ()


def has_known_fault(facts: Facts | None) -> bool:
    """Whether the server's version is one that its makers warn of; Valkey counts its own versions."""
    first, last = FAULTY_REDIS
    return facts is not None and facts.product == "redis" and first <= facts.version <= last


def judge(mode: Durability, facts: Facts | None) -> Findings:
    """Hold a server's configuration against what a mode promises."""
    if facts is None:
        unseen = ("this user may not ask the server how it is configured (INFO)",)
        return Findings(warnings=unseen) if mode == "fast" else Findings(refusals=unseen)
    refusals, warnings = [], []
    if facts.version < LEAST_VERSION:
        refusals.append("the server is older than 7.0")
    if facts.eviction == UNKNOWN:
        warnings.append("the server does not say what it does when memory is full")
    elif facts.eviction != "noeviction":
        refusals.append(f"maxmemory-policy is {facts.eviction}, which drops snapshots: set noeviction")
    weaknesses = _find_weaknesses(mode, facts)
    (warnings if mode == "fast" else refusals).extend(weaknesses)
    if facts.replicas < REPLICAS[mode]:
        refusals.append("no replica is connected")
    return Findings(tuple(refusals), tuple(warnings))


def _find_weaknesses(mode: Durability, facts: Facts) -> list[str]:
    if not facts.is_append_only:
        return ["appendonly is off: a restart of the server loses everything since its last dump"]
    if mode == "fast":
        return [] if facts.fsync in ("everysec", "always", UNKNOWN) else [f"appendfsync is {facts.fsync}"]
    if facts.fsync != "always":
        return [f"appendfsync is {facts.fsync}, not always"]
    if facts.skips_fsync_on_rewrite != "no":
        return [f"no-appendfsync-on-rewrite is {facts.skips_fsync_on_rewrite}, not no"]
    return []


class Guard:
    """Holds the server to a mode: at the start by refusing to work, later by saying loudly what has changed."""

    def __init__(
        self, client: Redis, mode: Durability, health: Health, counters: Counters, log: FilteringBoundLogger
    ) -> None:
        self._client = client
        self._mode = mode
        self._health = health
        self._kept = counters.durability.labels(mode)
        self._log = log
        self._last = Findings()

    async def check(self) -> None:
        """Look before anything is read; ``DurabilityRefused`` when the server does not give what is promised."""
        facts = await inspect(self._client)
        findings = judge(self._mode, facts)
        if findings.refusals:
            raise DurabilityRefused(f"durability {self._mode}: {'; '.join(findings.refusals)}")
        if facts is not None and has_known_fault(facts):
            version = ".".join(map(str, facts.version))
            self._log.error("unsafe_server_version", version=version, advice="update Redis beyond 8.6.2, or use Valkey")
        self._note(findings)

    async def watch(self) -> None:
        """Look again and again until cancelled; a server that is away is looked at when it is back."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            try:
                self._note(judge(self._mode, await inspect(self._client)))
            except (RedisError, OSError) as error:
                self._log.debug("durability_unchecked", error=type(error).__name__)

    def _note(self, findings: Findings) -> None:
        self._kept.set(not findings.refusals and not findings.warnings)
        self._health.is_durable = not findings.refusals
        if findings != self._last:
            self._last = findings
            for shortfall in findings.refusals + findings.warnings:
                self._log.critical("durability_degraded", detail=f"{self._mode}: {shortfall}")

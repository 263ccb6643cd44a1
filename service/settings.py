"""Settings: every `SECATEUR_*` variable, read once, here and nowhere else."""

import difflib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import redis
from msgspec import Struct

from contracts import MAX_BODY_BYTES, Policy, Refused, load_policy

PREFIX: Final = "SECATEUR_"
SOCKET_TIMEOUT_S: Final = 10.0
ADMIT_ENTRIES: Final = 100_000
ADMIT_BYTES: Final = 2**30
MARKER_TTL_S: Final = 86_400
MAX_PORT: Final = 65_535
TLS_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
MAX_BLOCK_MS: Final = int(SOCKET_TIMEOUT_S * 1000 / 2)  # a read that blocks as long as its socket waits looks dead

Durability = Literal["fast", "durable", "replicated"]
LogStyle = Literal["auto", "json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]

_LANE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class SettingsError(Exception):
    """A setting cannot be used; the message says in one line which, and what to write instead."""


class Settings(Struct, frozen=True, kw_only=True):
    """What a process needs to know besides its input."""

    redis_url: str | None
    data_dir: Path
    lane: str
    workers: int
    policy: Policy
    claim_after_ms: int
    attempts: int
    deadline_s: int
    memory_mb: int
    durability: Durability
    batch_count: int
    batch_bytes: int
    block_ms: int
    grace_s: int
    max_body_bytes: int
    admit_entries: int
    admit_bytes: int
    marker_ttl_s: int
    fence_ttl_s: int
    inbox_ttl_s: int
    blob_above_bytes: int
    blob_ttl_s: int
    results_kept: int
    metrics_kept: int
    http_host: str
    http_port: int
    log: LogStyle
    log_level: LogLevel


class Variable(NamedTuple):
    """One variable: its name, what holds when it is unset, what it means, how its text becomes a value."""

    name: str
    default: str
    meaning: str
    read: Callable[[str], Any]


def _whole(least: int, most: int = 10**15) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,16}", text) or not least <= int(text) <= most:
            raise SettingsError(f"a whole number from {least} to {most}")
        return int(text)

    return read


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise SettingsError(f"one of {', '.join(choices)}")
        return text

    return read


def _read_url(text: str) -> str | None:
    if text and not text.startswith(("redis://", "rediss://", "unix://")):
        raise SettingsError("a URL that starts with redis://, rediss:// or unix://")
    if text and not _is_usable(text):
        raise SettingsError("a URL like redis://user:password@host:6379/0, with options that redis-py knows")
    for option, path in parse_qsl(urlsplit(text).query):
        if option in TLS_FILES and not (Path(path).is_file() and os.access(path, os.R_OK)):
            raise SettingsError(f"a URL whose {option} names a file that can be read")
    return text or None


def _is_usable(url: str) -> bool:
    # Without its words: what looks like a bad port can be the rest of a password.
    try:
        parts = urlsplit(url)
        redis.Redis.from_url(url).connection_pool.make_connection()
    except (ValueError, TypeError):
        return False
    return parts.scheme == "unix" or re.fullmatch("(/[0-9]*)?", parts.path) is not None


def _read_lane(text: str) -> str:
    if not _LANE.fullmatch(text):
        raise SettingsError("1 to 64 characters out of A-Z a-z 0-9 _ . -")
    return text


def _read_policy(text: str) -> Policy:
    try:
        return load_policy(json.loads(text) if text.lstrip().startswith("{") else text)
    except (json.JSONDecodeError, RecursionError):
        raise SettingsError("a preset's name, or an inline policy as a JSON object") from None
    except Refused as error:
        raise SettingsError(f"a policy that exists ({error.detail})") from None


def _read_directory(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise SettingsError("a directory (there is no such user)") from None


TABLE: Final = (
    Variable("REDIS_URL", "", "the Redis or Valkey to use; unset: an embedded server", _read_url),
    Variable("DATA_DIR", "~/.local/state/secateur", "where the embedded server keeps its data", _read_directory),
    Variable("LANE", "main", "the group of keys to work on", _read_lane),
    Variable("WORKERS", "1", "worker processes of one `secateur worker`", _whole(1, 1024)),
    Variable("POLICY", "", "a preset's name or an inline policy, for snapshots that bring none", _read_policy),
    Variable("CLAIM_AFTER_MS", "30000", "idle time after which a dead worker's entry is taken over", _whole(100)),
    Variable("ATTEMPTS", "4", "isolated attempts before a suspect becomes a dead letter", _whole(1, 1000)),
    Variable("DEADLINE_S", "10", "how long the pruning of one snapshot may take", _whole(1, 3600)),
    Variable("MEMORY_MB", "2048", "address space of a worker and of an isolated attempt", _whole(512, 2**20)),
    Variable("DURABILITY", "fast", "what the server must promise", _one_of("fast", "durable", "replicated")),
    Variable("BATCH_COUNT", "64", "entries in one read, at most", _whole(1, 10_000)),
    Variable("BATCH_BYTES", str(2 * 2**20), "bytes in one read, aimed at from the sizes seen so far", _whole(1)),
    Variable("BLOCK_MS", "2000", "how long an idle read waits", _whole(1, MAX_BLOCK_MS)),
    Variable("GRACE_S", "20", "how long a stopping worker may finish what it has begun", _whole(1, 3600)),
    Variable("MAX_BODY_BYTES", str(MAX_BODY_BYTES), "a larger snapshot is refused", _whole(1, 512 * 2**20)),
    Variable("ADMIT_ENTRIES", str(ADMIT_ENTRIES), "entries in an input above which producers wait; 0: any", _whole(0)),
    Variable("ADMIT_BYTES", str(ADMIT_BYTES), "bytes in an input above which producers wait; 0: any", _whole(0)),
    Variable("MARKER_TTL_S", str(MARKER_TTL_S), "how long a resend of a settled snapshot is recognised", _whole(1)),
    Variable("FENCE_TTL_S", "604800", "how long the newest sequence of a conversation is remembered", _whole(1)),
    Variable("INBOX_TTL_S", "86400", "how long an inbox outlives its last result; 0: for ever", _whole(0)),
    Variable("BLOB_ABOVE_BYTES", "0", "a larger result becomes a key of its own; 0: none does", _whole(0)),
    Variable("BLOB_TTL_S", "86400", "how long such a key is kept", _whole(1)),
    Variable("RESULTS_KEPT", "1000000", "newest results kept in a stream, about; 0: never trimmed", _whole(0)),
    Variable("METRICS_KEPT", "1000000", "newest metrics rows kept, about; 0: never trimmed", _whole(0)),
    Variable("HTTP_HOST", "127.0.0.1", "address of /live, /ready, /metrics and /asyncapi.json", str),
    Variable("HTTP_PORT", "0", "their port, plus the worker's number from 0; 0: not served", _whole(0, MAX_PORT)),
    Variable("LOG", "auto", "json, console, or auto: console on a terminal", _one_of("auto", "json", "console")),
    Variable("LOG_LEVEL", "info", "debug, info, warning or error", _one_of("debug", "info", "warning", "error")),
)
VARIABLES: Final = frozenset(PREFIX + variable.name for variable in TABLE)


def load_settings(environ: Mapping[str, str]) -> Settings:
    """The settings that ``environ`` describes; ``SettingsError`` names what is misspelt or out of range."""
    _refuse_unknown(environ)
    values = {variable.name.lower(): _read(variable, environ) for variable in TABLE}
    if not environ.get(PREFIX + "DATA_DIR") and environ.get("XDG_STATE_HOME"):
        values["data_dir"] = Path(environ["XDG_STATE_HOME"], "secateur")
    if values["http_port"] and values["http_port"] + values["workers"] - 1 > MAX_PORT:
        raise SettingsError(f"SECATEUR_HTTP_PORT must leave a port up to {MAX_PORT} for each worker")
    return Settings(**values)


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in VARIABLES:
            close = difflib.get_close_matches(name, VARIABLES, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(VARIABLES))}"
            raise SettingsError(f"unknown setting {name[:80]!r}; {hint}")


def _read(variable: Variable, environ: Mapping[str, str]) -> Any:
    name = PREFIX + variable.name
    text = environ.get(name) or variable.default
    try:
        return variable.read(text)
    except SettingsError as error:
        raise SettingsError(f"{name} must be {error}") from None

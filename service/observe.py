"""Observe: one log line per snapshot, strict JSON or readable, that never holds conversation text."""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from service.settings import LogLevel, LogStyle
from service.settle import Settlement, Verdict

MAX_VALUE_CHARS: Final = 256
MAX_REASONS: Final = 16
SAFE_TYPES: Final = frozenset({int, float, bool, type(None)})
LINE_BREAKS: Final = {0x85: "?", 0x2028: "?", 0x2029: "?"}  # the ones that JSON does not escape

# What a line may hold; anything else is left out, so that no mistake elsewhere can log content.
KNOWN_KEYS: Final = frozenset(
    {
        "timestamp",
        "level",
        "event",
        "lane",
        "worker",
        "stream",
        "entry_id",
        "snapshot_id",
        "conversation_id",
        "workload",
        "format",
        "policy",
        "sequence",
        "status",
        "reason",
        "code",
        "detail",
        "error",
        "attempts",
        "duration_ms",
        "queue_delay_ms",
        "turns_removed",
        "rag_kept",
        "rag_dropped",
        "messages_before",
        "messages_after",
        "tokens_before",
        "tokens_after",
        "count",
        "pid",
        "exit_code",
        "delay_s",
    }
)

EVENTS: Final = {
    "pruned": "context_pruner_applied",
    "cannot_fit": "context_pruner_applied",
    "fallback": "context_pruner_fallback",
    "refused": "context_pruner_refused",
}
TOO_LATE: Final = {
    Verdict.SUPERSEDED: ("superseded", ["newer_settled"]),
    Verdict.DUPLICATE: ("duplicate", ["already_settled"]),
    Verdict.OTHER_ARRAY: ("duplicate", ["already_settled", "other_array"]),
    Verdict.VANISHED: ("vanished", []),
}


def open_log(style: LogStyle, level: LogLevel, stream: TextIO | None = None) -> FilteringBoundLogger:
    """A logger for this process; nothing global is configured."""
    stream = stream or sys.stderr
    is_console = style == "console" or (style == "auto" and stream.isatty())
    processors: list[Processor] = [
        structlog.processors.add_log_level,
        _add_time,
        keep_known,
        cap_values,
        render_console if is_console else render_json,
    ]
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(stream),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        cache_logger_on_first_use=True,
    )
    return logger


def log_snapshot(log: FilteringBoundLogger, settlement: Settlement, verdict: Verdict) -> None:
    """Write the one line of a settled snapshot; an entry that another worker settled is that worker's to log."""
    if verdict in (Verdict.SETTLED, Verdict.KEPT):
        log.debug("settled_elsewhere" if verdict is Verdict.SETTLED else "left_pending", entry_id=settlement.entry.id)
        return
    metrics = settlement.metrics
    status, reason = TOO_LATE.get(verdict, (metrics.status, metrics.reason))
    write = log.warning if verdict is Verdict.OTHER_ARRAY else log.info
    write(
        EVENTS.get(status, "context_pruner_skipped"),
        status=status,
        reason=reason,
        snapshot_id=metrics.snapshot_id,
        conversation_id=metrics.conversation_id,
        entry_id=metrics.entry_id,
        workload=metrics.workload,
        format=metrics.format,
        policy=metrics.policy,
        sequence=metrics.sequence,
        turns_removed=settlement.counts.turns_removed,
        rag_kept=settlement.counts.rag_kept,
        rag_dropped=settlement.counts.rag_dropped,
        messages_before=metrics.messages_before,
        messages_after=metrics.messages_after,
        tokens_before=metrics.tokens_before,
        tokens_after=metrics.tokens_after,
        duration_ms=metrics.total_microseconds / 1000,
        queue_delay_ms=metrics.queue_delay_ms,
        attempts=metrics.attempts,
        **({"code": settlement.refusal.code, "detail": settlement.refusal.detail} if settlement.refusal else {}),
    )


def _add_time(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    event["timestamp"] = datetime.now(UTC).isoformat(timespec="milliseconds")
    return event


def keep_known(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Drop every key that no line of ours has; what a reader looks for first stands first."""
    head = {key: event.pop(key) for key in ("timestamp", "level", "event")}
    return head | {key: value for key, value in event.items() if key in KNOWN_KEYS}


def cap_values(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Shorten what is long, and reduce what is neither text, number nor a list of codes to its type."""
    return {key: value if type(value) in SAFE_TYPES else _capped(value) for key, value in event.items()}


def _capped(value: Any) -> Any:
    if isinstance(value, str):
        text = str(value[:MAX_VALUE_CHARS])
        return text if text.isascii() else text.encode("utf-8", "replace").decode().translate(LINE_BREAKS)
    if isinstance(value, list):
        return [_capped(item) for item in value[:MAX_REASONS] if isinstance(item, str)]
    return value if value is None or isinstance(value, (bool, int, float)) else type(value).__name__


def render_json(_: WrappedLogger, __: str, event: EventDict) -> str:
    """One line of strict JSON; a number that JSON cannot hold becomes null."""
    return msgspec.json.encode(event).decode()


def render_console(_: WrappedLogger, __: str, event: EventDict) -> str:
    """One readable line; control characters show as escapes."""
    time, level, name = event.pop("timestamp")[11:23], event.pop("level"), event.pop("event")
    facts = " ".join(f"{key}={_shown(value)}" for key, value in event.items() if value not in (None, "", []))
    return f"{time} {level:<7} {_shown(name):<24} {facts}".rstrip()


def _shown(value: Any) -> str:
    text = ",".join(value) if isinstance(value, list) else str(value)
    return text if text.isprintable() and " " not in text else repr(text)

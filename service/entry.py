"""Entry: from a stream entry to its settlement; whatever is wrong with it becomes a refusal, never an exception."""

import hashlib
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Struct

import pipeline
from contracts import (
    Code,
    Counts,
    Metrics,
    Policy,
    PolicyRef,
    Pruned,
    Refused,
    Snapshot,
    StageMetrics,
    Tokens,
    decode_snapshot,
    encode,
    load_policy,
)
from service.fingerprint import fingerprint
from service.keys import BODY_FIELD, CONVERSATION_FIELD, ENCODING_FIELD, REPLAYS_FIELD
from service.packing import unpack
from service.settlement import Entry, Refusal, Settlement

MAX_FIELDS: Final = 64
MAX_SIBLING_BYTES: Final = 64 * 2**10  # of everything beside the body
CACHED_POLICIES: Final = 256

T = TypeVar("T")


class Desk(Struct, frozen=True):
    """What a worker brings to every entry."""

    worker: str
    batch_stream: str
    policy: Policy
    max_body_bytes: int
    max_attempts: int


class Stopwatch:
    """Microseconds of one entry, in all and by stage."""

    def __init__(self) -> None:
        self._began = time.perf_counter_ns()
        self.decode = 0
        self.stages: dict[str, int] = {}

    @property
    def total(self) -> int:
        """Microseconds since the entry was taken up."""
        return (time.perf_counter_ns() - self._began) // 1000

    def around(self, stage: str, call: Callable[[], T]) -> T:
        """Run a stage and add its time to the stage's account."""
        began = time.perf_counter_ns()
        try:
            return call()
        finally:
            spent = (time.perf_counter_ns() - began) // 1000
            self.stages[stage] = self.stages.get(stage, 0) + spent


class Opened(Struct, frozen=True):
    """An entry whose snapshot has been read."""

    entry: Entry
    snapshot: Snapshot
    watch: Stopwatch


def prune_entry(entry: Entry, desk: Desk) -> Settlement:
    """The settlement of one entry: a result, or the refusal that says what is wrong with it."""
    opened = open_entry(entry, desk)
    return prune_opened(opened, desk) if isinstance(opened, Opened) else opened


def open_entry(entry: Entry, desk: Desk) -> Opened | Settlement:
    """The entry with its snapshot read, or its refusal."""
    watch = Stopwatch()
    try:
        if entry.attempts > desk.max_attempts:
            raise Refused(Code.CRASHED, f"{desk.max_attempts} isolated attempts began and none came back")
        opened = Opened(entry, _read(entry, desk), watch)
    except Exception as error:
        return _refuse(entry, desk, watch, None, as_refusal(error))
    watch.decode = watch.total
    return opened


def prune_opened(opened: Opened, desk: Desk) -> Settlement:
    """The settlement of an entry that was read: its result, or why there is none."""
    entry, snapshot, watch = opened.entry, opened.snapshot, opened.watch
    try:
        policy = find_policy(snapshot.policy, desk.policy)
        return _accept(entry, desk, watch, snapshot, pipeline.prune(snapshot, policy, around=watch.around))
    except Exception as error:
        return _refuse(entry, desk, watch, snapshot, as_refusal(error))


def pass_over(opened: Opened, desk: Desk) -> Settlement:
    """The settlement of an entry that need not be pruned; it holds only if a newer one has been settled."""
    entry, snapshot = opened.entry, opened.snapshot
    try:
        policy = find_policy(snapshot.policy, desk.policy)
    except Refused as refused:
        return _refuse(entry, desk, opened.watch, snapshot, refused)
    before = len(snapshot.messages)
    metrics = msgspec.structs.replace(
        _metrics(entry, desk, opened.watch, snapshot), messages_before=before, messages_after=before
    )
    tokens = Tokens(0, 0, policy.count)  # nobody counted them
    return Settlement(
        entry=entry,
        snapshot_id=snapshot.snapshot_id,
        is_resendable=snapshot.snapshot_id != entry_snapshot_id(entry, desk),
        fingerprint=fingerprint(snapshot.messages),
        conversation_id=snapshot.conversation_id,
        sequence=snapshot.sequence,
        inbox=snapshot.inbox,
        metrics=metrics,
        row=b"",
        short_row=_short_row(metrics),
        short_result=_short_result(snapshot, snapshot.format, PolicyRef(policy.name, policy.hash), tokens),
    )


def as_refusal(error: Exception) -> Refused:
    """What an error says of the entry that raised it; never its message, which may quote input."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, RecursionError):
        return Refused(Code.TOO_DEEP)
    if isinstance(error, MemoryError):
        return Refused(Code.OUT_OF_MEMORY)
    return Refused(Code.INTERNAL, describe_fault(error))


def identify(entry: Entry, desk: Desk) -> Snapshot | None:
    """Whose snapshot an entry holds, without its content; nothing when that cannot be read."""
    try:
        snapshot = _read(entry, desk)
    except (Refused, RecursionError):
        return None
    return Snapshot(
        snapshot.conversation_id,
        [],
        snapshot_id=snapshot.snapshot_id,
        sequence=snapshot.sequence,
        workload=snapshot.workload,
    )


def refuse_entry(entry: Entry, desk: Desk, refused: Refused, snapshot: Snapshot | None) -> Settlement:
    """The settlement of an entry that is not to be tried again."""
    return _refuse(entry, desk, Stopwatch(), snapshot, refused)


def _read(entry: Entry, desk: Desk) -> Snapshot:
    snapshot = decode_snapshot(find_body(entry.fields, desk.max_body_bytes), max_bytes=desk.max_body_bytes)
    if any(named != snapshot.conversation_id.encode() for named in _values(entry.fields, CONVERSATION_FIELD)):
        raise Refused(Code.CONVERSATION_MISMATCH)
    if snapshot.snapshot_id:
        return snapshot
    return msgspec.structs.replace(snapshot, snapshot_id=entry_snapshot_id(entry, desk))


def entry_snapshot_id(entry: Entry, desk: Desk) -> str:
    """The id of a snapshot that brings none; entry ids are unique within one stream only."""
    return f"e:batch:{entry.id}" if entry.stream == desk.batch_stream else f"e:{entry.id}"


def find_body(fields: list[bytes], max_bytes: int) -> bytes:
    """The one body among an entry's fields; ``Refused`` when there is none, or no single one."""
    if len(fields) > 2 * (MAX_FIELDS + (REPLAYS_FIELD in fields[::2])):
        raise Refused(Code.TOO_MANY_FIELDS, f"{len(fields) // 2} fields, the limit is {MAX_FIELDS}")
    bodies = _values(fields, BODY_FIELD)
    if sum(map(len, fields)) > max_bytes + MAX_SIBLING_BYTES:
        raise Refused(Code.TOO_LARGE, f"the entry's fields are over the limit of {max_bytes} bytes")
    if not bodies:
        raise Refused(Code.NO_BODY)
    if any(body != bodies[0] for body in bodies):
        raise Refused(Code.DUPLICATE_FIELD)
    encodings = _values(fields, ENCODING_FIELD)
    if any(encoding != encodings[0] for encoding in encodings):
        raise Refused(Code.DUPLICATE_FIELD)
    return unpack(bodies[0], encodings[0], max_bytes) if encodings else bodies[0]


def _values(fields: list[bytes], wanted: bytes) -> list[bytes]:
    return [value for name, value in zip(fields[::2], fields[1::2], strict=True) if name == wanted]


def find_policy(source: str | dict[str, Any], default: Policy) -> Policy:
    """The policy that a snapshot asks for, or the default when it asks for none."""
    if not source:
        return default
    return _named(source) if isinstance(source, str) else _inline(encode(source))


@lru_cache(CACHED_POLICIES)
def _named(name: str) -> Policy:
    return load_policy(name)


@lru_cache(CACHED_POLICIES)
def _inline(text: bytes) -> Policy:
    return load_policy(msgspec.json.decode(text, type=dict[str, Any]))


def _accept(entry: Entry, desk: Desk, watch: Stopwatch, snapshot: Snapshot, pruned: Pruned) -> Settlement:
    result = encode(pruned)
    before = len(snapshot.messages)
    metrics = msgspec.structs.replace(
        _metrics(entry, desk, watch, snapshot),
        status=pruned.status,
        reason=pruned.reason,
        format=pruned.format,
        policy=pruned.policy.name,
        messages_before=before,
        messages_after=pipeline.count_after(before, pruned.edits),
        tokens_before=pruned.tokens.before,
        tokens_after=pruned.tokens.after,
        bytes_after=len(result),
        stages=_stages(watch, pruned),
        economics=pruned.economics or None,
    )
    return Settlement(
        entry=entry,
        snapshot_id=snapshot.snapshot_id,
        is_resendable=snapshot.snapshot_id != entry_snapshot_id(entry, desk),
        fingerprint=fingerprint(snapshot.messages),
        conversation_id=snapshot.conversation_id,
        sequence=snapshot.sequence,
        inbox=snapshot.inbox,
        metrics=metrics,
        row=encode(metrics),
        short_row=_short_row(metrics),
        result=result,
        short_result=_short_result(
            snapshot, pruned.format, pruned.policy, msgspec.structs.replace(pruned.tokens, after=pruned.tokens.before)
        ),
        counts=pruned.counts,
    )


def _refuse(entry: Entry, desk: Desk, watch: Stopwatch, snapshot: Snapshot | None, refused: Refused) -> Settlement:
    metrics = msgspec.structs.replace(
        _metrics(entry, desk, watch, snapshot),
        status="refused",
        reason=[refused.code.value],
        messages_before=len(snapshot.messages) if snapshot else 0,
    )
    return Settlement(
        entry=entry,
        snapshot_id=metrics.snapshot_id,
        is_resendable=metrics.snapshot_id != entry_snapshot_id(entry, desk),
        conversation_id=metrics.conversation_id,
        metrics=metrics,
        row=encode(metrics),
        short_row=_short_row(metrics),
        refusal=_refusal(entry, refused),
    )


def _refusal(entry: Entry, refused: Refused) -> Refusal:
    if refused.code is not Code.TOO_LARGE:
        return Refusal(refused.code, refused.detail)
    values = _values(entry.fields, BODY_FIELD)
    body = values[0] if values else b"".join(entry.fields)
    return Refusal(refused.code, refused.detail, hashlib.sha256(body).hexdigest(), len(body))


def _metrics(entry: Entry, desk: Desk, watch: Stopwatch, snapshot: Snapshot | None) -> Metrics:
    return Metrics(
        entry_id=entry.id,
        snapshot_id=snapshot.snapshot_id if snapshot else entry_snapshot_id(entry, desk),
        conversation_id=snapshot.conversation_id if snapshot else "",
        workload=snapshot.workload if snapshot else "",
        status="",
        worker=desk.worker,
        sequence=snapshot.sequence if snapshot else None,
        inbox=snapshot.inbox if snapshot else "",
        bytes_before=sum(map(len, entry.fields[1::2])),
        queue_delay_ms=max(0, time.time_ns() // 1_000_000 - int(entry.id.partition("-")[0])),
        decode_microseconds=watch.decode,
        total_microseconds=watch.total,
        # The attempt over the limit is never made.
        attempts=max(1, min(entry.attempts, desk.max_attempts)),
    )


def _stages(watch: Stopwatch, pruned: Pruned) -> dict[str, StageMetrics]:
    edits: dict[str, int] = {}
    saved: dict[str, int] = {}
    for edit in pruned.edits:
        edits[edit.stage] = edits.get(edit.stage, 0) + 1
        saved[edit.stage] = saved.get(edit.stage, 0) + edit.tokens_before - edit.tokens_after
    return {
        stage: StageMetrics(edits.get(stage, 0), saved.get(stage, 0), watch.stages.get(stage, 0))
        for stage in watch.stages | edits
    }


def _short_result(snapshot: Snapshot, format: str, policy: PolicyRef, tokens: Tokens) -> bytes:
    """A result without messages, for a snapshot that comes too late; the settle script adds its outcome in front."""
    fields: dict[str, object] = {
        "snapshot_id": snapshot.snapshot_id,
        "conversation_id": snapshot.conversation_id,
        "sequence": snapshot.sequence,
        "workload": snapshot.workload,
        "format": format,
        "policy": policy,
        "edits": [],
        "cuts": [],
        "first_changed_index": None,
        "tokens": tokens,
        "counts": Counts(),
        "summary": "turns_removed=0,rag_kept=0",
    }
    if snapshot.metadata is not UNSET:
        fields["metadata"] = snapshot.metadata
    return encode(fields)[1:]


def _short_row(metrics: Metrics) -> bytes:
    """The metrics row of an entry that changed nothing; the settle script adds its outcome in front."""
    fields = {
        "entry_id": metrics.entry_id,
        "snapshot_id": metrics.snapshot_id,
        "conversation_id": metrics.conversation_id,
        "workload": metrics.workload,
        "worker": metrics.worker,
        "sequence": metrics.sequence,
        "inbox": metrics.inbox,
        "bytes_before": metrics.bytes_before,
        "queue_delay_ms": metrics.queue_delay_ms,
        "total_microseconds": metrics.total_microseconds,
        "attempts": metrics.attempts,
    }
    return encode(fields)[1:]


def describe_fault(error: BaseException) -> str:
    """Where and as what an error was raised; never its message, which may quote input."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None:
        return type(error).__name__
    path = Path(frame.tb_frame.f_code.co_filename)
    return f"{type(error).__name__} at {path.parent.name}/{path.name}:{frame.tb_lineno}"

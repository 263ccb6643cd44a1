"""Secateur: the client. One connection serves any number of calls, and results come into an inbox of its own.

No caller ever touches the connection, so cancelling a call cannot disturb another one's replies.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from msgspec import Struct
from redis.exceptions import RedisError

from contracts import MAX_BODY_BYTES, Code, Cut, Pruned, Refused, decode_snapshot, encode
from pipeline import check_format
from service.admit import Admission, Gate, Limits, read_reply
from service.client.call import Answer, Call, fail_open
from service.client.line import WATCHED, Line
from service.entry import describe_fault
from service.fingerprint import fingerprint
from service.keys import BLOB_FIELD, BODY_FIELD, SNAPSHOT_FIELD, Keys
from service.packing import can_pack, pack
from service.settle import UNREACHABLE, growing_delays, is_passing

TIMEOUT_S: Final = 10.0
SENT_AT_ONCE: Final = 32
SENT_BYTES: Final = 4 * 2**20
READ_AT_ONCE: Final = 16
LOOK_EVERY_S: Final = 1.0  # even if nobody says that the inbox changed; also how often overdue snapshots are looked up
OVERDUE_S: Final = 1.0
TIDY_WITHIN_S: Final = 2.0
CANCEL_AGAIN_S: Final = 0.05
REMEMBERED: Final = 10_000
DEAD: Final = b"dead:"

log = logging.getLogger("secateur")


class Named(Struct, frozen=True):
    """As much of a result as tells whose it is."""

    snapshot_id: str


_result = msgspec.json.Decoder(Pruned)
_named = msgspec.json.Decoder(Named)


class Secateur:
    """Prunes through the workers of one lane; to be used as an async context manager, in one event loop."""

    def __init__(
        self,
        url: str,
        *,
        lane: str = "main",
        timeout_s: float = TIMEOUT_S,
        limits: Limits | None = None,
        is_packing: bool = False,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        if is_packing and not can_pack():
            raise ValueError("packing needs the extra: pip install 'secateur[zstd]'")
        self._keys = Keys(lane)
        self._timeout_s = timeout_s
        self._is_packing = is_packing
        self._max_body_bytes = max_body_bytes
        self._gate = Gate(self._keys, limits or Limits())
        self._name = f"client-{secrets.token_hex(8)}"
        self._inbox = self._keys.results(self._name)
        self._count = 0
        self._calls: dict[str, Call] = {}
        self._bodies: dict[str, int] = {}
        self._seen: list[Any] = []
        self._outgoing: list[Call] = []
        self._has_outgoing = asyncio.Event()
        self._has_calls = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._line = Line(url)

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(_keep_running(work)) for work in (self._send, self._receive)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks, self._tasks = self._tasks, []
        for call in list(self._calls.values()):
            call.fail(Code.CLIENT_CLOSED)
        try:
            await _end(tasks)
            await self._tidy_up()
        finally:
            await self._line.close()

    async def prune(
        self,
        messages: Sequence[Any],
        *,
        conversation_id: str = "",
        snapshot_id: str = "",
        sequence: int | None = None,
        policy: str | dict[str, Any] = "",
        format: str = "auto",
        system: Any = None,
        tools: Any = None,
        usage: dict[str, Any] | None = None,
        cache: dict[str, Any] | None = None,
        cuts: Sequence[Cut] = (),
        previous_response_id: str = "",
        workload: str = "default",
        taken_at: int = 0,
        metadata: Any = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """The array to send to the model; the caller's own when no result comes in time.

        Items that were not changed are the caller's own objects. A snapshot that no worker would take raises
        ``Refused``: that is a mistake to mend, not a fault to live with.
        """
        messages = list(messages)  # the caller may go on with his while we wait
        self._count += 1
        snapshot_id = snapshot_id or f"{self._name}-{self._count}"
        fields: dict[str, Any] = {
            "conversation_id": conversation_id or snapshot_id,
            "snapshot_id": snapshot_id,
            "sequence": sequence,
            "workload": workload,
            "format": format,
            "previous_response_id": previous_response_id,
            "policy": policy,
            "usage": usage,
            "cache": cache,
            "cuts": list(cuts),
            "inbox": self._name,
            "reply": "patch",
            "taken_at": taken_at,
        }
        given = {"system": system, "tools": tools, "metadata": metadata}
        fields |= {name: value for name, value in given.items() if value is not None}
        body = write_body(fields | {"messages": messages})
        sent = decode_snapshot(body, max_bytes=self._max_body_bytes).messages
        check_format(format)
        is_id_reused = self._is_id_reused(snapshot_id, body)
        body, encoding = pack(body) if self._is_packing else (body, "")
        admission = Admission(self._keys.snapshots, snapshot_id, body, encoding, fingerprint=fingerprint(sent))
        call = self._open(Call(admission, messages, sent, is_id_reused=is_id_reused))
        try:
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                return await call.answer
        except TimeoutError:
            return fail_open(messages, Code.NO_ANSWER if call.is_admitted else Code.SERVER_AWAY)
        finally:
            self._close(call)

    def _is_id_reused(self, snapshot_id: str, body: bytes) -> bool:
        """Whether this client sent another body under the same id: its result comes into the same inbox."""
        digest = hash(body)
        known = self._bodies.pop(snapshot_id, digest)
        self._bodies[snapshot_id] = known
        if len(self._bodies) > REMEMBERED:
            del self._bodies[next(iter(self._bodies))]
        return known != digest

    def _open(self, call: Call) -> Call:
        if not self._tasks:
            raise RuntimeError("a Secateur works inside `async with` only")
        if call.admission.id in self._calls:
            raise ValueError("a call with this snapshot_id is under way")
        self._calls[call.admission.id] = call
        self._outgoing.append(call)
        self._has_outgoing.set()
        self._has_calls.set()
        return call

    def _close(self, call: Call) -> None:
        call.answer.cancel()  # whoever still holds the call sees that nobody waits for it
        del self._calls[call.admission.id]
        if not self._calls:
            self._has_calls.clear()

    async def _send(self) -> None:
        delays = growing_delays()
        while True:
            await self._has_outgoing.wait()
            calls = self._take_outgoing()
            if not calls:
                self._has_outgoing.clear()
                continue
            again = await self._admit(calls)
            if again:
                self._outgoing[:0] = again
                await asyncio.sleep(next(delays))
            else:
                delays = growing_delays()

    def _take_outgoing(self) -> list[Call]:
        """The next calls that somebody still waits for, as many as one write should hold."""
        waiting = [call for call in self._outgoing if not call.answer.done()]
        count = size = 0
        while count < min(len(waiting), SENT_AT_ONCE) and size < SENT_BYTES:
            size += len(waiting[count].admission.body)
            count += 1
        self._outgoing = waiting[count:]
        return waiting[:count]

    async def _admit(self, calls: list[Call]) -> list[Call]:
        """Send calls on; those that must be sent again, which adds nothing twice."""
        commands = [("SCRIPT", "LOAD", self._gate.script.text), *(self._gate.command(call.admission) for call in calls)]
        try:
            replies = (await self._line.ask(commands))[1:]
        except (RedisError, OSError) as error:
            _warn("snapshots not sent yet", error)
            replies = [error] * len(calls)
        return [call for call, reply in zip(calls, replies, strict=True) if not self._was_taken(call, reply)]

    def _was_taken(self, call: Call, reply: Any) -> bool:
        try:
            admitted = read_reply(reply)
        except Refused as refused:
            call.fail(refused.code)
        except (RedisError, OSError) as error:
            if is_passing(error):
                return False
            _warn("snapshot refused", error)
            call.fail(Code.SERVER_AWAY)
        else:
            call.is_admitted = True
            if admitted.is_other_array:
                call.fail(Code.OTHER_ARRAY)
        return True

    async def _receive(self) -> None:
        delays = growing_delays()
        while True:
            if not self._seen:
                await self._has_calls.wait()
            try:
                rows = await self._read()
                for entry_id, flat in rows:
                    await self._deliver(flat)
                    self._seen.append(entry_id)
                delays = growing_delays()
                if not rows:
                    await self._look_up_overdue()
                    await self._wait_for_change()
            except (RedisError, OSError) as error:
                _warn("inbox not read yet", error)
                await asyncio.sleep(next(delays))

    async def _read(self) -> list[list[Any]]:
        """What has come, after deleting what was seen: so every read starts at the oldest, whatever ids do."""
        self._line.changed.clear()
        seen = [("XDEL", self._inbox, *self._seen)] if self._seen else []
        read = ("XREAD", "COUNT", READ_AT_ONCE, "STREAMS", self._inbox, "0")
        reply = (await self._line.ask_strictly([*seen, WATCHED, read]))[-1]
        self._seen = []
        return [row for rows in (reply or {}).values() for row in rows]

    async def _wait_for_change(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_EVERY_S):
                await self._line.changed.wait()

    async def _deliver(self, flat: list[bytes]) -> None:
        """Hand a row to the call it answers; one that cannot be used costs nobody else anything."""
        fields = dict(_pairs(flat))
        body = fields.get(BODY_FIELD, b"")
        name = fields.get(SNAPSHOT_FIELD, b"").decode(errors="replace")
        try:
            if BLOB_FIELD in fields:
                body = await self._fetch(fields[BLOB_FIELD], name)
            if body:
                name = _named.decode(body).snapshot_id
            call = self._calls.get(name)
            if call and body:
                call.succeed(_result.decode(body))
        except UNREACHABLE:
            raise  # it is read again
        except Exception as error:
            log.warning("secateur: a result in the inbox cannot be used: %s", describe_fault(error))
            if name in self._calls:
                self._calls[name].fail(Code.BAD_RESULT)

    async def _fetch(self, blob: bytes, snapshot_id: str) -> bytes:
        # Whoever writes into an inbox must not be able to have any key deleted.
        if not blob.startswith(self._keys.blob("0")[:-1].encode()):
            raise ValueError("not a blob's key")
        # Deleted unread when nobody waits any more.
        fetch = [("GET", blob)] if snapshot_id in self._calls else []
        found = (await self._line.ask_strictly([*fetch, ("DEL", blob)]))[0]
        return found if isinstance(found, bytes) else b""

    async def _look_up_overdue(self) -> None:
        """Find out about snapshots that will get no result, so that nobody waits for one in vain."""
        now = time.monotonic()
        calls = [call for call in self._calls.values() if call.is_admitted and now - call.began > OVERDUE_S]
        for call in calls:
            if call.is_settled:
                # It was settled before the last read, and that read emptied the inbox.
                call.fail(Code.RESULT_GONE)
        waiting = [call for call in calls if not call.answer.done()]
        if not waiting:
            return
        names = [self._keys.done(call.admission.id) for call in waiting]
        (markers,) = await self._line.ask_strictly([("MGET", *names)])
        for call, marker in zip(waiting, markers, strict=True):
            if marker and marker.startswith(DEAD):
                call.fail(marker.decode().partition(" ")[2])
            elif marker:
                call.is_settled = True

    async def _tidy_up(self) -> None:
        # What is settled after this recreates the inbox, with the lane's time to live.
        with suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(TIDY_WITHIN_S):
                await self._line.ask([("DEL", self._inbox)])


async def _keep_running(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await work()
        except Exception as error:
            # A fault of ours costs the calls under way their time, never those to come.
            log.error("secateur: client failed: %s", describe_fault(error))
            await asyncio.sleep(OVERDUE_S)


def _warn(what: str, error: Exception) -> None:
    # A Redis error can quote arguments, and those hold the conversation: only its kind is repeated.
    log.warning("secateur: %s: %s", what, type(error).__name__)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        # redis-py on Python 3.11 now and then swallows a cancellation that comes while it writes.
        _, running = await asyncio.wait(running, timeout=CANCEL_AGAIN_S)


def write_body(fields: dict[str, Any]) -> bytes:
    """The wire form of a snapshot; ``Refused`` when something in it has none."""
    try:
        return encode(fields)
    except RecursionError:
        raise Refused(Code.TOO_DEEP) from None
    except UnicodeEncodeError:
        raise Refused(Code.NOT_UTF8, "a text holds half of a surrogate pair") from None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise Refused(Code.WRONG_SHAPE, f"a value has no JSON form ({type(error).__name__})") from None


def _pairs(flat: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)

"""Bytes to contracts and back: every decoder built once, every failure one error with a code."""

import re
from codecs import utf_8_decode
from typing import Any, Final

import msgspec
from msgspec import Raw

from contracts.errors import Code, Refused
from contracts.snapshot import VERSION, Snapshot

MAX_BODY_BYTES: Final = 32 * 2**20
MAX_MESSAGES: Final = 100_000
MAX_CONTAINERS: Final = 600_000  # each costs the pipeline a microsecond and 200 bytes, and may be two characters long
MAX_ID_BYTES: Final = 256
CHECKED_AT_ONCE: Final = 8 * 2**10

_snapshot = msgspec.json.Decoder(Snapshot)
_encoder = msgspec.json.Encoder()

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_INBOX = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# msgspec quotes input in some messages; only types, limits and the path are safe to repeat.
_SAFE_CLAIM = re.compile(r"Expected `[\w |]+`(?: (?:>=|<=|>|<) -?\d+| of length (?:>=|<=) \d+)?(?:, got `\w+`)?")
_SAFE_PATH = re.compile(r" - at `(\$[\w.\[\]]*)`$")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_MISSING = re.compile(r"Object missing required field `(\w+)`")


def encode(value: Any) -> bytes:
    """The wire form of a contract; raw items are written as they came."""
    return _encoder.encode(value)


def decode_snapshot(body: bytes, *, max_bytes: int = MAX_BODY_BYTES, max_messages: int = MAX_MESSAGES) -> Snapshot:
    """The snapshot in ``body``, or ``Refused`` with a code and no conversation text."""
    check_body(body, max_bytes)
    try:
        snapshot = _snapshot.decode(body)
    except RecursionError:
        raise Refused(Code.TOO_DEEP) from None
    except MemoryError:
        raise Refused(Code.OUT_OF_MEMORY) from None
    except msgspec.ValidationError as error:
        raise refuse_shape(str(error)) from None
    except msgspec.DecodeError as error:
        raise Refused(Code.NOT_JSON, _byte_offset(str(error))) from None
    _check_values(snapshot, max_messages)
    _check_containers(body)
    return snapshot


def check_body(body: bytes, max_bytes: int = MAX_BODY_BYTES) -> None:
    """Refuse a body by size and encoding before anything parses it."""
    if not body:
        raise Refused(Code.EMPTY_BODY)
    if len(body) > max_bytes:
        raise Refused(Code.TOO_LARGE, f"{len(body)} bytes, the limit is {max_bytes}")
    if not body.isascii():
        _check_text(body)


def _check_text(body: bytes) -> None:
    # Piece by piece: the text itself is not wanted, and one of megabytes costs more to put somewhere than to check.
    start, view = 0, memoryview(body)
    try:
        while start < len(body):
            end = start + CHECKED_AT_ONCE
            start += utf_8_decode(view[start:end], "strict", end >= len(body))[1]
    except UnicodeDecodeError as error:
        raise Refused(Code.NOT_UTF8, f"invalid byte at offset {start + error.start}") from None


def refuse_shape(message: str) -> Refused:
    """The refusal for one of msgspec's validation messages, with everything that may quote input left out."""
    found = _SAFE_PATH.search(message)
    path = found.group(1) if found else "$"
    if path == "$.format":
        return Refused(Code.UNKNOWN_FORMAT)
    missing = _MISSING.match(message)
    if missing:
        return Refused(Code.WRONG_SHAPE, f"missing field {missing.group(1)} at {path}")
    claim = _SAFE_CLAIM.match(message)
    what = claim.group(0).replace("`", "") if claim else "unexpected value"
    in_range = ", got" in what or not re.search(r"[<>]=?|out of range", message)
    return Refused(Code.WRONG_SHAPE if in_range else Code.OUT_OF_RANGE, f"{what} at {path}")


def _byte_offset(message: str) -> str:
    found = re.search(r"\(byte (\d+)\)", message)
    return f"malformed at byte {found.group(1)}" if found else "the JSON ends early or holds a broken escape"


def _check_values(snapshot: Snapshot, max_messages: int) -> None:
    if snapshot.version > VERSION:
        raise Refused(Code.UNSUPPORTED_VERSION, f"version {snapshot.version}, this worker knows {VERSION}")
    if not snapshot.conversation_id or not _is_plain_id(snapshot.conversation_id):
        raise Refused(Code.BAD_CONVERSATION_ID)
    if not _is_plain_id(snapshot.snapshot_id):
        raise Refused(Code.BAD_SNAPSHOT_ID)
    if snapshot.inbox and not _INBOX.fullmatch(snapshot.inbox):
        raise Refused(Code.BAD_INBOX)
    if len(snapshot.messages) > max_messages:
        raise Refused(Code.TOO_MANY_MESSAGES, f"{len(snapshot.messages)} messages, the limit is {max_messages}")


def _check_containers(body: bytes) -> None:
    # Too short to hold so many, or too few even with those that are only text: most bodies are done here.
    if len(body) <= 2 * MAX_CONTAINERS or _count_containers(body) <= MAX_CONTAINERS:
        return
    found = _count_containers(_STRING.sub(b"", body))
    if found > MAX_CONTAINERS:
        raise Refused(Code.TOO_MANY_CONTAINERS, f"{found} objects and arrays, the limit is {MAX_CONTAINERS}")


def _count_containers(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{")


def _is_plain_id(text: str) -> bool:
    return len(text.encode()) <= MAX_ID_BYTES and not _CONTROL.search(text)


def raw(value: Any) -> Raw:
    """A Python value as one raw JSON item."""
    return Raw(_encoder.encode(value))

"""The JSON documents in files or standard input, one at a time, with where each stands."""

import errno
import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

import msgspec
from msgspec import Raw

from contracts import MAX_BODY_BYTES, Code, Refused, check_body, encode
from service.cli.problem import Problem

STDIN: Final = "-"
LINE_SUFFIXES: Final = (".jsonl", ".ndjson")
PACKED_SUFFIXES: Final = (".gz", ".xz")
GZIP_MAGIC: Final = b"\x1f\x8b"
XZ_MAGIC: Final = b"\xfd7zXZ\x00"
BROKEN_PACKING: Final = (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error)

_document = msgspec.json.Decoder(Raw)
_array = msgspec.json.Decoder(list[Raw])


class Record(NamedTuple):
    """One document as it came: a snapshot, or a bare messages array that gets ``conversation_id``."""

    file: str
    line: int
    conversation_id: str
    body: bytes


class Reject(NamedTuple):
    """One document that cannot be used: where it stands and why."""

    file: str
    line: int
    code: str
    detail: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.code}: {self.detail}"


class Records:
    """Every document of some files in order; ``bytes_read`` of ``bytes_total`` tells how far the reading is."""

    def __init__(self, names: Sequence[str], max_bytes: int = MAX_BODY_BYTES) -> None:
        self.names = names
        self.max_bytes = max_bytes
        self.bytes_total = sum(_size(name) for name in names)  # also finds a bad name before any work is done
        self._done = 0
        self._raw: BinaryIO | None = None

    @property
    def bytes_read(self) -> int:
        """How much of the files, as they lie on disk, has been read."""
        is_seekable = self._raw is not None and not self._raw.closed and self._raw.seekable()
        return self._done + (self._raw.tell() if self._raw and is_seekable else 0)

    def __iter__(self) -> Iterator[Record | Reject]:
        for name in self.names:
            with open_input(name) as (raw, file):
                self._raw = raw
                yield from _documents(name, file, self.max_bytes)
            self._done += _size(name)
            self._raw = None


@contextmanager
def open_input(name: str) -> Iterator[tuple[BinaryIO, io.BufferedReader]]:
    """The raw file and its content; gzip and xz are unpacked on the way."""
    if name == STDIN:
        if sys.stdin is None:
            raise Problem("standard input is closed")
        stdin = cast(io.BufferedReader, sys.stdin.buffer)
        yield stdin, _unpacked(stdin)
        return
    with open(name, "rb") as raw, _unpacked(raw) as file:
        yield raw, file


def conversation_name(name: str, line: int = 0) -> str:
    """What a bare array is called: its file's stem, and its line where a file holds many."""
    stem = STDIN if name == STDIN else _plain_path(name).stem
    return f"{stem}:{line}" if line else stem


def as_snapshot(body: bytes, conversation_id: str, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    """A bare messages array wrapped as a snapshot; anything else as it came."""
    check_body(body, max_bytes)
    if not body.lstrip().startswith(b"["):
        return body
    try:
        messages = _array.decode(body)
    except RecursionError:
        raise Refused(Code.TOO_DEEP) from None
    except msgspec.DecodeError as error:
        raise Refused(Code.NOT_JSON, str(error)) from None  # raw items: the message never quotes them
    return encode({"conversation_id": conversation_id, "messages": messages})


def printable(name: str) -> str:
    """A file's name that can be written anywhere, whatever bytes it has."""
    return os.fsencode(name).decode(errors="replace")


def _documents(name: str, file: io.BufferedReader, max_bytes: int) -> Iterator[Record | Reject]:
    line = 0
    try:
        first = file.readline(max_bytes + 1)
        if not _is_lines(name, first, file):
            yield _document_of(name, first + file.read(max_bytes + 1 - len(first)), max_bytes)
            return
        for line, text in enumerate(_lines(first, file, max_bytes), 1):
            if not text.isspace():
                yield _line_of(name, line, text, max_bytes)
    except BROKEN_PACKING as error:
        yield Reject(printable(name), line + 1, Code.BAD_ENCODING, str(error))


def _is_lines(name: str, first: bytes, file: io.BufferedReader) -> bool:
    if _plain_path(name).suffix in LINE_SUFFIXES:
        return True
    return bool(file.peek(1)) and _is_whole(first)


def _lines(text: bytes, file: io.BufferedReader, max_bytes: int) -> Iterator[bytes]:
    while text:
        yield text
        while len(text) > max_bytes and not text.endswith(b"\n"):
            text = file.readline(max_bytes + 1)
        text = file.readline(max_bytes + 1)


def _document_of(name: str, body: bytes, max_bytes: int) -> Record | Reject:
    if len(body) > max_bytes:
        return _too_large(name, 1, max_bytes)
    return Record(printable(name), 1, conversation_name(name), body)


def _line_of(name: str, line: int, text: bytes, max_bytes: int) -> Record | Reject:
    if len(text) > max_bytes:
        return _too_large(name, line, max_bytes)
    return Record(printable(name), line, conversation_name(name, line), text)


def _too_large(name: str, line: int, max_bytes: int) -> Reject:
    return Reject(printable(name), line, Code.TOO_LARGE, f"over the limit of {max_bytes} bytes")


def _is_whole(text: bytes) -> bool:
    try:
        _document.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _unpacked(raw: io.BufferedReader) -> io.BufferedReader:
    magic = raw.peek(len(XZ_MAGIC))
    if magic.startswith(GZIP_MAGIC):
        return io.BufferedReader(gzip.GzipFile(fileobj=raw))
    if magic.startswith(XZ_MAGIC):
        return io.BufferedReader(lzma.LZMAFile(raw))
    return raw


def _plain_path(name: str) -> Path:
    path = Path(printable(name))
    return path.with_suffix("") if path.suffix in PACKED_SUFFIXES else path


def _size(name: str) -> int:
    if name == STDIN:
        return 0
    status = os.stat(name)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not os.access(name, os.R_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    return status.st_size

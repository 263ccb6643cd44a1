"""The child in which suspects are tried one at a time, under limits that the system enforces; quick to start."""

import os
import struct
import sys
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from service.entry import Desk, identify, prune_entry
from service.limits import die_with_parent, limit_memory, obey_deadlines, set_deadline
from service.settlement import Entry

NO_MEMORY: Final = 77  # exit code
HEADER: Final = struct.Struct(">Q")


class Terms(Struct, frozen=True):
    """What a cell gets to know when it starts."""

    parent: int
    desk: Desk
    deadline_s: float
    memory_mb: int


def serve_cell() -> int:
    """Be the child: prune what comes in until the parent is gone."""
    obey_deadlines()
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print must not look like an answer
    terms = msgspec.msgpack.decode(_read(source) or b"", type=Terms)
    die_with_parent(terms.parent)
    limit_memory(terms.memory_mb)
    _write(sink, b"")
    while frame := _read(source):
        entry = msgspec.msgpack.decode(frame, type=Entry)
        set_deadline(terms.deadline_s)
        try:
            _answer(sink, entry, terms.desk)
        except MemoryError:
            os._exit(NO_MEMORY)
        set_deadline(0)
    return 0


def _answer(sink: BinaryIO, entry: Entry, desk: Desk) -> None:
    # Who it is goes out first: if pruning is the end of this process, the parent still knows.
    _write(sink, msgspec.msgpack.encode(identify(entry, desk)))
    settlement = prune_entry(entry, desk)
    named = msgspec.structs.replace(entry, fields=[])  # the parent has them
    _write(sink, msgspec.msgpack.encode(msgspec.structs.replace(settlement, entry=named)))


def _read(source: BinaryIO) -> bytes | None:
    header = source.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    return source.read(HEADER.unpack(header)[0])


def _write(sink: BinaryIO, text: bytes) -> None:
    sink.write(HEADER.pack(len(text)))
    sink.write(text)
    sink.flush()


if __name__ == "__main__":
    sys.exit(serve_cell())

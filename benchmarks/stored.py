"""Stored conversations: real ones from a corpus directory, as snapshots of a known format."""

import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from contracts import Snapshot, encode

DEFAULT_CORPUS: Final = Path(__file__).parent.parent.parent / "shared" / "corpus"

WIRE_FORMATS: Final[dict[str, str]] = {
    "anthropic-messages": "anthropic",
    "openai-chat": "openai-chat",
    "openai-chat-derived": "openai-chat",
    "openai-responses": "openai-responses",
    "gemini-contents": "gemini",
    "opencode-export": "opencode",
}


class Record(Struct, frozen=True):
    """One line of a corpus file."""

    id: str
    format: str
    messages: list[Raw]
    origin: dict[str, Any] = {}  # where it was stored upstream: the same in every shape it is kept in
    system: Raw | UnsetType = UNSET
    tools: Raw | UnsetType = UNSET


_record = msgspec.json.Decoder(Record)


def corpus_files(corpus: Path) -> list[Path]:
    """The files that hold conversations in one of our formats."""
    return [path for path in sorted(corpus.glob("*.jsonl.xz")) if wire_format(path)]


def wire_format(path: Path) -> str | None:
    """The wire format that a corpus file's name says."""
    return WIRE_FORMATS.get(path.name.removesuffix(".jsonl.xz").rpartition("__")[2])


def read_records(paths: Iterable[Path]) -> Iterator[Record]:
    """Every record, file by file."""
    for path in paths:
        with lzma.open(path, "rb") as lines:
            yield from map(_record.decode, lines)


def body_of(record: Record) -> bytes:
    """The record as the snapshot that an agent runner would publish."""
    return encode(
        Snapshot(
            conversation_id=record.id[:200],
            messages=record.messages,
            format=WIRE_FORMATS[record.format],
            system=record.system,
            tools=record.tools,
        )
    )

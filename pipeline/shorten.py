"""Shorten: three ways to make one text fit a number of characters; each knows its own mark again."""

import re
from collections.abc import Callable
from typing import Final

from pipeline.notices import TRUNCATED

CHARS_PER_TOKEN: Final = 4
HEAD_SHARE: Final = 0.6
_GAP: Final = re.compile(r"\n\[\.\.\. \d+ characters left out \.\.\.\]\n")
_EVIDENCE: Final = re.compile(
    r"error|exception|traceback|fail|fatal|panic|denied|not found|undefined|warning|assert|expected", re.IGNORECASE
)
_IDENTIFIER: Final = re.compile(
    r"/\w|\w\(|[a-z][A-Z]|[a-z]_[a-z]|[0-9a-f]{7}|\d{3}"
)  # paths, calls, names, hashes, numbers

Shorten = Callable[[str, int], str]


def head(text: str, limit: int) -> str:
    """The first ``limit`` characters and a mark."""
    if len(text) <= limit or (text.endswith(TRUNCATED) and len(text) - len(TRUNCATED) <= limit):
        return text
    return text[:limit] + TRUNCATED


def head_tail(text: str, limit: int) -> str:
    """The start and the end, with a line between that says how much is gone."""
    if len(text) <= limit or _is_gapped(text, limit):
        return text
    front = int(limit * HEAD_SHARE)
    return f"{text[:front]}{_gap(len(text) - limit)}{text[len(text) - (limit - front) :]}"


def condense(text: str, limit: int) -> str:
    """Start, end, and between them the lines that name errors, paths and identifiers."""
    if len(text) <= limit or _is_gapped(text, limit):
        return text
    front, back = limit // 3, limit // 4
    middle = text[front : len(text) - back]
    kept = _telling_lines(middle, limit - front - back)
    gone = len(middle) - len(kept)
    return f"{text[:front]}{_gap(gone)}{kept}{chr(10) if kept else ''}{text[len(text) - back :]}"


def _telling_lines(text: str, limit: int) -> str:
    """The lines worth most that fit, in their order: errors first, then those with identifiers."""
    lines = text.split("\n")
    worth = [_worth(line) for line in lines]
    room = limit
    chosen: list[int] = []
    for i in sorted((i for i, value in enumerate(worth) if value), key=lambda i: -worth[i]):
        if len(lines[i]) < room:
            chosen.append(i)
            room -= len(lines[i]) + 1
    return "\n".join(lines[i] for i in sorted(chosen))


def _worth(line: str) -> int:
    return 2 * bool(_EVIDENCE.search(line)) + bool(_IDENTIFIER.search(line))


def _gap(count: int) -> str:
    return f"\n[... {count} characters left out ...]\n"


def _is_gapped(text: str, limit: int) -> bool:
    found = _GAP.search(text)
    return found is not None and len(text) - len(found.group(0)) <= limit + 1


SHAPES: Final[dict[str, Shorten]] = {"head": head, "head_tail": head_tail, "condense": condense}

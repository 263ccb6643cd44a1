"""What goes to the terminal: bytes as they are, text that cannot play tricks on it."""

import re
import sys

from service.cli.problem import Problem

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\s]+")


def write_line(line: bytes) -> None:
    """One line of JSON to standard output, as it is."""
    if sys.stdout is None:
        raise Problem("standard output is closed")
    sys.stdout.flush()
    sys.stdout.buffer.write(line + b"\n")


def is_watched() -> bool:
    """Whether progress can be drawn: standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def plain(text: str) -> str:
    """Text that can neither move the cursor nor break the line."""
    return _UNPRINTABLE.sub(" ", text)

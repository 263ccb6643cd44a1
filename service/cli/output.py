"""What goes to the terminal: bytes as they are, text that cannot play tricks on it."""

import io
import re
import select
import sys

from service.cli.problem import Problem

# Control characters, and those that turn the direction of what follows.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\s]+")


def write_line(line: bytes) -> None:
    """One line of JSON to standard output, as it is."""
    if sys.stdout is None:
        raise Problem("standard output is closed")
    sys.stdout.flush()
    sys.stdout.buffer.write(line + b"\n")


def require_reader() -> None:
    """Raise ``BrokenPipeError`` when nobody will read what is written next; a write would notice only then."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (AttributeError, io.UnsupportedOperation):
        return  # no descriptor, or a system that cannot ask
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise BrokenPipeError


def is_watched() -> bool:
    """Whether progress can be drawn: standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def plain(text: str) -> str:
    """Text that can neither move the cursor nor break the line."""
    return _UNPRINTABLE.sub(" ", text)

"""Wire formats: the one tuple of them, and how to tell an array's format."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from contracts import Code, Refused
from pipeline.dialects.anthropic import ANTHROPIC
from pipeline.dialects.dialect import Dialect, Violation
from pipeline.dialects.gemini import GEMINI
from pipeline.dialects.openai_chat import OPENAI_CHAT
from pipeline.dialects.openai_responses import OPENAI_RESPONSES
from pipeline.dialects.opencode import OPENCODE

__all__ = ["DIALECTS", "Dialect", "Violation", "check_format", "find_dialect", "known_formats"]

DIALECTS: Final = (ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES, GEMINI, OPENCODE)

_LOOK_AT: Final = 200  # items are alike: these many decide


def find_dialect(name: str, items: Sequence[Any]) -> Dialect:
    """The format of that name, or for `auto` the one that the parsed items show; ``Refused`` if none does."""
    if name == "auto":
        return _detect(items)
    check_format(name)
    return next(dialect for dialect in DIALECTS if dialect.name == name)


def known_formats() -> list[str]:
    """What a snapshot may give as its format."""
    return ["auto", *(dialect.name for dialect in DIALECTS)]


def check_format(name: str) -> None:
    """Refuse a name that no format has; it is not repeated, since it came with a conversation."""
    if name not in known_formats():
        raise Refused(Code.UNKNOWN_FORMAT, f"known: {', '.join(known_formats())}")


def _detect(items: Sequence[Any]) -> Dialect:
    """The format of the first item that only one can have, else one that most items could be."""
    could = [0] * len(DIALECTS)
    for item in islice(items, _LOOK_AT):
        for number, dialect in enumerate(DIALECTS):
            level = dialect.recognise(item)
            if level == 2:
                return dialect
            could[number] += level
    if items and not any(could):
        raise Refused(Code.UNKNOWN_FORMAT)
    fits = [dialect for number, dialect in enumerate(DIALECTS) if could[number] == max(could)]
    # Only the stricter format's rules hold for both when nothing tells them apart, unless they are broken already.
    speaker = items[0].get("role") if items and isinstance(items[0], dict) else None
    return next((d for d in fits if not d.needs_user_first or speaker == "user"), fits[0])

"""Token counts: one counter per method, each a pure function of a text and what kind of part it stands in."""

from collections.abc import Callable
from functools import cache
from typing import Final

from contracts import Code, Refused
from pipeline.view import Part, View

Counter = Callable[[str], int]

MEDIA_TOKENS: Final = 1_600  # an image whose dimensions are unknown
PROBE_EVERY: Final = 512
PROBE_CHARS: Final = 96
EXACT_CHUNK: Final = 40_000  # the encoder refuses more than 200,000 tokens at once
CALIBRATION: Final = (0.5, 2.5)
CODE_MARKS: Final = ("{", "}", ";", "()", "=", "\n    ", "\t")


def chars_over_four(text: str) -> int:
    """The seeds' estimate: four characters a token."""
    return len(text) // 4


def estimate(text: str) -> int:
    """Characters by kind: prose 4.0 a token, code 3.5, JSON 3.2, wide scripts 1.5, a base64 run about 1."""
    length = len(text)
    if length < PROBE_CHARS:
        return length if not length else (length + 3) // 4 if text.isascii() else _wide(text, 4.0)
    ratio = _ratio(text)
    runs = _unbroken(text)
    plain = _wide(text, ratio) if not text.isascii() else int(length / ratio)
    return plain + int(runs * (1 - 1 / ratio))


def _ratio(text: str) -> float:
    head = text[:2_000]
    if head.lstrip()[:1] in ("{", "["):
        return 3.2
    marks = sum(head.count(mark) for mark in CODE_MARKS)
    return 3.5 if marks * 40 > len(head) else 4.0


def _wide(text: str, ratio: float) -> int:
    # Two extra bytes a character: the CJK share; accented Latin counts half.
    wide = min((len(text.encode("utf-8", "replace")) - len(text)) // 2, len(text))
    return int((len(text) - wide) / ratio + wide / 1.5) + 1


def _unbroken(text: str) -> int:
    """About how many characters stand in runs without a blank, such as base64: a probe every few hundred."""
    hits = 0
    for start in range(0, len(text) - PROBE_CHARS + 1, PROBE_EVERY):
        probe = text[start : start + PROBE_CHARS]
        if probe.isascii() and probe.replace("+", "a").replace("/", "a").isalnum():
            hits += 1
    return min(hits * PROBE_EVERY, len(text))


@cache
def counter(method: str) -> Counter:
    """The counter a policy names; exact ones need the `exact` extra."""
    if method == "chars/4":
        return chars_over_four
    if method in ("estimate", "calibrated"):
        return estimate
    return _exact(method)


def _exact(method: str) -> Counter:
    try:
        import bpe_openai
    except ImportError:
        raise Refused(Code.BAD_POLICY, f"count {method} needs the extra: pip install 'secateur[exact]'") from None
    encoding = bpe_openai.get_encoding(method)

    def exact(text: str) -> int:
        chunks = (text[i : i + EXACT_CHUNK] for i in range(0, len(text), EXACT_CHUNK))
        return sum(len(encoding.encode(chunk, disallowed_special=())) for chunk in chunks)

    return exact


def calibrate(reported: int, estimated: int) -> float:
    """Reported tokens per estimated token, within reason: a report may cover more than the array."""
    low, high = CALIBRATION
    return min(high, max(low, reported / estimated)) if estimated > 0 and reported > 0 else 1.0


def count_view(view: View, count: Counter) -> int:
    """The size of one message, each of its texts counted once."""
    total = 0
    for part in view.parts:
        total += count_part(part, count)
    return total


def count_part(part: Part, count: Counter) -> int:
    """The size of one part: its texts, its names, what no slot shows, and a flat price for media without one."""
    total = part.size // 4
    for _, text in part.slots:
        total += count(text)
    kind = part.kind
    if kind == "call":
        total += (len(part.name) + 3) // 4
    elif kind == "media" and not part.size:
        total += MEDIA_TOKENS
    return total

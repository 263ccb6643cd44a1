"""Media: what an image costs by its dimensions, which the first bytes of it tell; a flat price where they do not."""

import math
from binascii import Error, a2b_base64
from collections.abc import Callable
from typing import Any, Final

from pipeline.tokens import MEDIA_TOKENS

Size = tuple[int, int]
Price = Callable[[int, int], int]

FLAT_CHARS: Final = 4 * MEDIA_TOKENS
HEADER_CHARS: Final = 64
JPEG_CHARS: Final = 16_384  # its dimensions stand behind what the camera wrote
MOST_SEGMENTS: Final = 64
LONGEST_EDGE: Final = 1_568
TILE_TOKENS: Final = 170
BASE_TOKENS: Final = 85
SMALL_TOKENS: Final = 258
SMALL_EDGE: Final = 384


def by_area(width: int, height: int) -> int:
    """A token for 750 pixels, of what is left when the longer edge is brought down to its limit."""
    scale = min(1.0, LONGEST_EDGE / max(width, height))
    return min(MEDIA_TOKENS, math.ceil(width * height * scale * scale / 750))


def by_tiles(width: int, height: int) -> int:
    """A base and a price for each tile of 512, of what is left within 2,048 and with a shorter edge of 768."""
    scale = min(1.0, 2_048 / max(width, height))
    scale *= min(1.0, 768 / (min(width, height) * scale))
    return BASE_TOKENS + TILE_TOKENS * math.ceil(width * scale / 512) * math.ceil(height * scale / 512)


def by_smallness(width: int, height: int) -> int:
    """One price for a small image; how a large one is cut up is not known."""
    return SMALL_TOKENS if max(width, height) <= SMALL_EDGE else MEDIA_TOKENS


def image_chars(data: Any, price: Price = by_area) -> int:
    """The characters that an image counts as, given its base64 or its data URL."""
    size = image_size(data)
    return FLAT_CHARS if size is None else 4 * max(1, price(*size))


def image_size(data: Any) -> Size | None:
    """Width and height of a PNG, JPEG, GIF or WebP; None for all else."""
    if not isinstance(data, str):
        return None
    start = data.find(",", 0, HEADER_CHARS) + 1 if data.startswith("data:") else 0
    head = _decoded(data[start : start + HEADER_CHARS])
    is_jpeg = head.startswith(b"\xff\xd8")
    size = _jpeg_size(_decoded(data[start : start + JPEG_CHARS])) if is_jpeg else _header_size(head)
    return size if size and all(size) else None


def _decoded(text: str) -> bytes:
    try:
        return a2b_base64(text[: len(text) // 4 * 4])
    except (Error, ValueError):
        return b""


def _header_size(head: bytes) -> Size | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    if head.startswith(b"GIF8"):
        return _little(head[6:8]), _little(head[8:10])
    return _webp_size(head) if head.startswith(b"RIFF") and head[8:12] == b"WEBP" else None


def _webp_size(head: bytes) -> Size | None:
    match head[12:16]:
        case b"VP8X":
            return _little(head[24:27]) + 1, _little(head[27:30]) + 1
        case b"VP8 ":
            return _little(head[26:28]) & 0x3FFF, _little(head[28:30]) & 0x3FFF
        case b"VP8L":
            bits = _little(head[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return None


def _jpeg_size(data: bytes) -> Size | None:
    """The dimensions in the frame header, behind other segments."""
    at = 2
    for _ in range(MOST_SEGMENTS):
        marker, rest = data[at : at + 2], data[at + 2 : at + 9]
        if len(rest) < 7 or marker[0] != 0xFF:
            return None
        if 0xC0 <= marker[1] <= 0xCF and marker[1] not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(rest[5:7]), int.from_bytes(rest[3:5])
        at += 2 + int.from_bytes(rest[:2])
    return None


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")

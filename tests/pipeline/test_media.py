"""What an image costs: by its dimensions where its first bytes tell them, a flat price otherwise, never as text."""

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.media import FLAT_CHARS, by_area, by_smallness, by_tiles, image_chars, image_size
from pipeline.tokens import MEDIA_TOKENS
from tests.pipeline.arrays import run

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (300).to_bytes(4) + (200).to_bytes(4) + b"\x08\x06" + bytes(90)
CAMERA = b"\xff\xe1" + (2_000).to_bytes(2) + bytes(1_998)
FRAME = b"\xff\xc2\x00\x11\x08" + (200).to_bytes(2) + (300).to_bytes(2) + bytes(90)
WEBP = b"RIFF\x00\x00\x00\x00WEBP"
IMAGES = {
    "png": PNG,
    "jpeg": b"\xff\xd8" + FRAME,
    "jpeg of a camera": b"\xff\xd8" + CAMERA + FRAME,
    "gif": b"GIF89a" + (300).to_bytes(2, "little") + (200).to_bytes(2, "little") + bytes(60),
    "webp": WEBP + b"VP8X" + bytes(8) + (299).to_bytes(3, "little") + (199).to_bytes(3, "little") + bytes(60),
    "lossy webp": WEBP + b"VP8 " + bytes(10) + (300).to_bytes(2, "little") + (200).to_bytes(2, "little") + bytes(60),
    "lossless webp": WEBP + b"VP8L" + bytes(5) + (299 | 199 << 14).to_bytes(4, "little") + bytes(60),
}


def text(data: bytes) -> str:
    return b64encode(data).decode()


@pytest.mark.parametrize("prefix", ["", "data:image/any;base64,"], ids=["base64", "data URL"])
@pytest.mark.parametrize("data", IMAGES.values(), ids=IMAGES)
def test_the_first_bytes_tell_the_dimensions(data: bytes, prefix: str) -> None:
    assert image_size(prefix + text(data)) == (300, 200)


@pytest.mark.parametrize(
    "data",
    [None, 7, "", "https://example.org/a.png", "語" * 80, text(b"%PDF-1.7"), text(PNG[:16] + bytes(40)), "iVBORw0KGgo"],
)
def test_what_does_not_tell_has_the_flat_price(data: Any) -> None:
    assert image_chars(data) == FLAT_CHARS


def test_a_frame_too_far_behind_is_not_searched_for() -> None:
    assert image_size(text(b"\xff\xd8" + CAMERA * 10 + FRAME)) is None
    assert image_size(text(b"\xff\xd8" + b"\xff\xe1\x00\x00" * 9_000)) is None


@given(st.binary(max_size=200), st.sampled_from([b"", *(data[:12] for data in IMAGES.values())]))
def test_no_bytes_can_break_it(data: bytes, start: bytes) -> None:
    for price in (by_area, by_tiles, by_smallness):
        assert 4 <= image_chars(text(start + data), price) <= FLAT_CHARS


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(1, 1, 1), (300, 200, 80), (1_000, 1_000, 1_334), (1_568, 784, 1_600), (9_000, 9_000, 1_600)],
)
def test_a_token_stands_for_750_pixels_within_the_limits(width: int, height: int, tokens: int) -> None:
    assert by_area(width, height) == tokens


@pytest.mark.parametrize(
    ("width", "height", "tokens"), [(512, 512, 255), (1_024, 1_024, 765), (2_048, 4_096, 1_105), (9_000, 90, 765)]
)
def test_tiles_have_their_price(width: int, height: int, tokens: int) -> None:
    assert by_tiles(width, height) == tokens


PNG_URL = f"data:image/png;base64,{text(PNG)}"
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text(PNG)}}
FILE = {"type": "file", "mime": "image/png", "url": PNG_URL}
ITEMS: dict[str, tuple[str, dict[str, Any], int]] = {
    "anthropic": ("anthropic", {"role": "user", "content": [BLOCK]}, 80),
    "anthropic result": (
        "anthropic",
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [BLOCK]}]},
        80,
    ),
    "openai-chat": (
        "openai-chat",
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG_URL}}]},
        255,
    ),
    "openai-responses": (
        "openai-responses",
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": PNG_URL}]},
        255,
    ),
    "openai-responses output": (
        "openai-responses",
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_image", "image_url": PNG_URL}]},
        255,
    ),
    "gemini": (
        "gemini",
        {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": text(PNG)}}]},
        258,
    ),
    "opencode": ("opencode", {"info": {"role": "user"}, "parts": [FILE]}, 80),
    "a file by its address": (
        "gemini",
        {"role": "user", "parts": [{"fileData": {"fileUri": "gs://bucket/a.png"}}]},
        MEDIA_TOKENS,
    ),
}


@pytest.mark.parametrize(("format_name", "item", "tokens"), ITEMS.values(), ids=ITEMS)
def test_every_format_counts_it_where_it_keeps_it(format_name: str, item: dict[str, Any], tokens: int) -> None:
    policy = {"count": "chars/4", "validate": {"input": "trust"}}

    assert run([item], policy, format_name).tokens.before == tokens

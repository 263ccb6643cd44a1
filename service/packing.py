"""Packing: bodies compressed with zstd, if the extra is installed; inflating stops at a limit."""

from typing import Any, Final

from contracts import Code, Refused

ZSTD: Final = "zstd"
PACK_FROM_BYTES: Final = 8 * 2**10  # below, the gain is not worth the time
LEVEL: Final = 1  # half a gigabyte a second; higher levels save little on JSON
LEAST_WINDOW_BYTES: Final = 2**23  # every decoder of zstd must take this much
MAGIC: Final = (b"\x28\xb5\x2f\xfd", b"\x1f\x8b")


def can_pack() -> bool:
    """Whether the extra is installed."""
    return _zstandard() is not None


def pack(body: bytes) -> tuple[bytes, str]:
    """The body as it is to be sent, and its encoding; small ones stay as they are."""
    zstandard = _zstandard()
    if zstandard is None or len(body) < PACK_FROM_BYTES:
        return body, ""
    return zstandard.ZstdCompressor(level=LEVEL).compress(body), ZSTD


def unpack(body: bytes, encoding: bytes, max_bytes: int) -> bytes:
    """The plain body; ``Refused`` when it is packed in an unknown or broken way, twice, or too tightly."""
    if encoding != ZSTD.encode():
        raise Refused(Code.BAD_ENCODING, "the field enc names no encoding but zstd")
    zstandard = _zstandard()
    if zstandard is None:
        raise Refused(Code.BAD_ENCODING, "zstd is not installed here: pip install 'secateur[zstd]'")
    try:
        plain = _inflate(zstandard, body, max_bytes)
    except zstandard.ZstdError:
        raise Refused(Code.BAD_ENCODING, "the zstd frame is broken, cut short or followed by something") from None
    if plain.startswith(MAGIC):
        raise Refused(Code.BAD_ENCODING, "packed twice")
    return plain


def _inflate(zstandard: Any, body: bytes, max_bytes: int) -> bytes:
    declared = zstandard.frame_content_size(body)
    if declared > max_bytes:
        raise Refused(Code.INFLATES_TOO_LARGE, f"{declared} bytes, the limit is {max_bytes}")
    inflater = zstandard.ZstdDecompressor(max_window_size=max(max_bytes, LEAST_WINDOW_BYTES))
    if declared >= 0:
        # Into a buffer of the declared size, so that a frame which holds more is broken and not a bomb.
        plain: bytes = inflater.decompress(body, allow_extra_data=False)
        return plain
    if len(inflater.stream_reader(body).read(max_bytes + 1)) > max_bytes:
        raise Refused(Code.INFLATES_TOO_LARGE, f"more than the limit of {max_bytes} bytes")
    inflating = inflater.decompressobj()
    plain = inflating.decompress(body)
    if not inflating.eof or inflating.unused_data:
        raise zstandard.ZstdError
    return plain


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        return None
    return zstandard

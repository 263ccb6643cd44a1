"""Packing: what was packed comes back, and nothing that pretends to be packed can hurt."""

import sys

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from contracts import Code, Refused
from service.packing import PACK_FROM_BYTES, pack, unpack

LIMIT = 100_000
GIGABYTE = bytes(2**30)


def streamed(body: bytes) -> bytes:
    """A frame that does not say how much it holds."""
    packing = zstandard.ZstdCompressor(level=1).compressobj()
    return packing.compress(body) + packing.flush()


def declared(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(body)


def lying_bomb() -> bytes:
    """A frame that says 100 bytes and holds a gigabyte."""
    return declared(GIGABYTE).replace((2**30).to_bytes(4, "little"), (100).to_bytes(4, "little"), 1)


@given(st.binary(max_size=3 * PACK_FROM_BYTES))
def test_what_is_packed_comes_back(body: bytes) -> None:
    packed, encoding = pack(body)

    assert (unpack(packed, encoding.encode(), LIMIT) if encoding else packed) == body


def test_small_bodies_stay_as_they_are() -> None:
    assert pack(b"x" * (PACK_FROM_BYTES - 1)) == (b"x" * (PACK_FROM_BYTES - 1), "")


@pytest.mark.parametrize("frame", [declared, streamed])
def test_exactly_the_limit_passes_and_one_byte_more_does_not(frame: type[bytes]) -> None:
    assert unpack(frame(b"x" * LIMIT), b"zstd", LIMIT) == b"x" * LIMIT
    with pytest.raises(Refused) as refused:
        unpack(frame(b"x" * (LIMIT + 1)), b"zstd", LIMIT)

    assert refused.value.code is Code.INFLATES_TOO_LARGE


@pytest.mark.parametrize(
    ("body", "encoding", "code"),
    [
        pytest.param(declared(GIGABYTE), b"zstd", Code.INFLATES_TOO_LARGE, id="bomb"),
        pytest.param(streamed(GIGABYTE), b"zstd", Code.INFLATES_TOO_LARGE, id="bomb of undeclared size"),
        pytest.param(lying_bomb(), b"zstd", Code.BAD_ENCODING, id="bomb that declares less"),
        pytest.param(declared(b"x" * 1000)[:-3], b"zstd", Code.BAD_ENCODING, id="cut short"),
        pytest.param(streamed(b"x" * 1000)[:-3], b"zstd", Code.BAD_ENCODING, id="cut short, undeclared"),
        pytest.param(declared(b"{}") + b"{}", b"zstd", Code.BAD_ENCODING, id="trailing bytes"),
        pytest.param(streamed(b"{}") + b"{}", b"zstd", Code.BAD_ENCODING, id="trailing bytes, undeclared"),
        pytest.param(declared(b"{}") * 2, b"zstd", Code.BAD_ENCODING, id="two frames"),
        pytest.param(declared(declared(b"{}")), b"zstd", Code.BAD_ENCODING, id="packed twice"),
        pytest.param(b"", b"zstd", Code.BAD_ENCODING, id="empty"),
        pytest.param(b"{}", b"zstd", Code.BAD_ENCODING, id="not packed at all"),
        pytest.param(b"{}", b"gzip", Code.BAD_ENCODING, id="another encoding"),
        pytest.param(b"{}", b"", Code.BAD_ENCODING, id="no encoding"),
        pytest.param(b"{}", b"\xff", Code.BAD_ENCODING, id="encoding not UTF-8"),
    ],
)
def test_what_cannot_be_unpacked_is_refused_with_its_code(body: bytes, encoding: bytes, code: Code) -> None:
    with pytest.raises(Refused) as refused:
        unpack(body, encoding, LIMIT)

    assert refused.value.code is code


def test_a_worker_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = declared(b"{}")
    monkeypatch.setitem(sys.modules, "zstandard", None)  # as if it were not installed

    with pytest.raises(Refused, match=r"pip install 'secateur\[zstd\]'") as refused:
        unpack(packed, b"zstd", LIMIT)

    assert refused.value.code is Code.BAD_ENCODING
    assert pack(b"x" * PACK_FROM_BYTES) == (b"x" * PACK_FROM_BYTES, "")

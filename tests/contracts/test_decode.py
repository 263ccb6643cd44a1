"""Decoding a snapshot: every way a body can be wrong has its code, and no error repeats what the body said."""

import gzip
import json
from typing import Any

import msgspec
import pytest

from contracts import Code, Refused, decode_snapshot, encode
from contracts.codec import MAX_ID_BYTES, MAX_MESSAGES

CANARY = "CANARY-9f3"
GOOD: dict[str, Any] = {"conversation_id": "c1", "messages": [{"role": "user", "content": CANARY}]}
BODY = json.dumps(GOOD).encode()


def body(**fields: Any) -> bytes:
    return json.dumps(GOOD | fields).encode()


def with_text(escaped: bytes) -> bytes:
    return BODY.replace(CANARY.encode(), CANARY.encode() + escaped)


REFUSED: dict[str, tuple[bytes, Code]] = {
    "empty bytes": (b"", Code.EMPTY_BODY),
    "blank": (b"  \n", Code.NOT_JSON),
    "truncated": (BODY[:-3], Code.NOT_JSON),
    "trailing garbage": (BODY + b" CANARY-9f3", Code.NOT_JSON),
    "two documents": (BODY + BODY, Code.NOT_JSON),
    "byte order mark": (b"\xef\xbb\xbf" + BODY, Code.NOT_JSON),
    "utf-16": (json.dumps(GOOD).encode("utf-16"), Code.NOT_UTF8),
    "latin-1": (json.dumps(GOOD, ensure_ascii=False).replace("CANARY", "CANARÝ").encode("latin-1"), Code.NOT_UTF8),
    "invalid UTF-8 in a used string": (BODY.replace(b"c1", b"c\xff"), Code.NOT_UTF8),
    "invalid UTF-8 in a message": (with_text(b"\xff"), Code.NOT_UTF8),
    "invalid UTF-8 in an unknown field": (BODY[:-1] + b',"x":"\xc3"}', Code.NOT_UTF8),
    "encoded surrogate": (with_text(b"\xed\xa0\x80"), Code.NOT_UTF8),
    "lone surrogate in a used string": (BODY.replace(b"c1", rb"\ud800"), Code.NOT_JSON),
    "raw control character": (BODY.replace(b"c1", b"c\x01"), Code.NOT_JSON),
    "raw control character in a message": (with_text(b"\x01"), Code.NOT_JSON),
    "NaN": (body().replace(b'"CANARY-9f3"', b"NaN"), Code.NOT_JSON),
    "Infinity": (body().replace(b'"CANARY-9f3"', b"-Infinity"), Code.NOT_JSON),
    "single quotes": (b"{'conversation_id': 'CANARY-9f3'}", Code.NOT_JSON),
    "pickle": (b"\x80\x04\x95CANARY-9f3", Code.NOT_UTF8),
    "YAML": (b"conversation_id: CANARY-9f3\nmessages: []\n", Code.NOT_JSON),
    "MessagePack": (msgspec.msgpack.encode(GOOD), Code.NOT_UTF8),
    "gzip": (gzip.compress(BODY, mtime=0), Code.NOT_UTF8),
    "an array": (b'["CANARY-9f3"]', Code.WRONG_SHAPE),
    "a string": (b'"CANARY-9f3"', Code.WRONG_SHAPE),
    "null": (b"null", Code.WRONG_SHAPE),
    "no conversation id": (b'{"messages": ["CANARY-9f3"]}', Code.WRONG_SHAPE),
    "no messages": (b'{"conversation_id": "CANARY-9f3"}', Code.WRONG_SHAPE),
    "messages null": (body(messages=None), Code.WRONG_SHAPE),
    "messages an object": (body(messages={"CANARY-9f3": 1}), Code.WRONG_SHAPE),
    "messages a string": (body(messages=CANARY), Code.WRONG_SHAPE),
    "conversation id a number": (body(conversation_id=7), Code.WRONG_SHAPE),
    "conversation id empty": (body(conversation_id=""), Code.BAD_CONVERSATION_ID),
    "conversation id too long": (body(conversation_id=CANARY + "x" * MAX_ID_BYTES), Code.BAD_CONVERSATION_ID),
    "conversation id too long in bytes": (
        body(conversation_id="é" * (MAX_ID_BYTES // 2 + 1)),
        Code.BAD_CONVERSATION_ID,
    ),
    "conversation id with a newline": (body(conversation_id=f"{CANARY}\n"), Code.BAD_CONVERSATION_ID),
    "conversation id with an escape": (body(conversation_id=f"{CANARY}\x1b[0m"), Code.BAD_CONVERSATION_ID),
    "conversation id with a line separator": (body(conversation_id=f"{CANARY}\u2028"), Code.BAD_CONVERSATION_ID),
    "snapshot id too long": (body(snapshot_id=CANARY + "x" * MAX_ID_BYTES), Code.BAD_SNAPSHOT_ID),
    "snapshot id with a NUL": (body(snapshot_id=f"{CANARY}\x00"), Code.BAD_SNAPSHOT_ID),
    "inbox with a slash": (body(inbox=f"../{CANARY}"), Code.BAD_INBOX),
    "inbox with braces": (body(inbox="{CANARY-9f3}"), Code.BAD_INBOX),
    "inbox too long": (body(inbox="x" * 65), Code.BAD_INBOX),
    "sequence negative": (body(sequence=-1), Code.OUT_OF_RANGE),
    "sequence too large": (body(sequence=10**15), Code.OUT_OF_RANGE),
    "sequence beyond doubles": (body(sequence=2**70), Code.OUT_OF_RANGE),
    "sequence a fraction": (body(sequence=1.5), Code.WRONG_SHAPE),
    "sequence a boolean": (body(sequence=True), Code.WRONG_SHAPE),
    "sequence a string": (body(sequence=CANARY), Code.WRONG_SHAPE),
    "taken_at negative": (body(taken_at=-1), Code.OUT_OF_RANGE),
    "version too new": (body(version=2), Code.UNSUPPORTED_VERSION),
    "format unknown": (body(format=[CANARY]), Code.UNKNOWN_FORMAT),
    "reply unknown": (body(reply=CANARY), Code.WRONG_SHAPE),
    "policy a number": (body(policy=3), Code.WRONG_SHAPE),
    "usage without figures": (body(usage={CANARY: 1}), Code.WRONG_SHAPE),
    "usage negative": (body(usage={"input_tokens": -1, "messages": 0}), Code.OUT_OF_RANGE),
    "cache age negative": (body(cache={"age_s": -0.5}), Code.OUT_OF_RANGE),
    "cut at a negative place": (body(cuts=[{"at": -1}]), Code.OUT_OF_RANGE),
    "nested too deep in a message": (with_text(b"").replace(b'"CANARY-9f3"', b"[" * 2000 + b"]" * 2000), Code.TOO_DEEP),
    "nested too deep in an unknown field": (BODY[:-1] + b',"x":' + b"[" * 2000 + b"]" * 2000 + b"}", Code.TOO_DEEP),
    "nested too deep in the policy": (BODY[:-1] + b',"policy":' + b'{"a":' * 2000 + b"1" + b"}" * 2001, Code.TOO_DEEP),
    "deep and unclosed": (BODY[:-1] + b',"x":' + b"[" * 2000, Code.TOO_DEEP),
}


@pytest.mark.parametrize(("wrong", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_a_wrong_body_is_refused_by_its_code_without_being_quoted(wrong: bytes, code: Code) -> None:
    with pytest.raises(Refused) as refusal:
        decode_snapshot(wrong)

    assert refusal.value.code is code
    assert CANARY not in _everything_said(refusal.value)


def _everything_said(error: BaseException) -> str:
    said = f"{error!s}{error!r}{error.args}{vars(error)}"
    nested = [
        cause for cause in (error.__cause__, error.__context__ if not error.__suppress_context__ else None) if cause
    ]
    return said + "".join(map(_everything_said, nested))


def test_a_body_over_the_limit_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(Refused) as refusal:
        decode_snapshot(b"\xff" * 101, max_bytes=100)

    assert refusal.value.code is Code.TOO_LARGE
    assert refusal.value.detail == "101 bytes, the limit is 100"


def test_too_many_messages_are_refused() -> None:
    with pytest.raises(Refused) as refusal:
        decode_snapshot(body(messages=[1, 2, 3]), max_messages=2)

    assert refusal.value.code is Code.TOO_MANY_MESSAGES
    assert len(decode_snapshot(body(messages=[1, 2]), max_messages=2).messages) == 2
    assert MAX_MESSAGES >= 10_000


def test_a_refusal_names_the_place_without_the_value() -> None:
    with pytest.raises(Refused) as refusal:
        decode_snapshot(body(usage={"input_tokens": CANARY, "messages": 0}))

    assert "$.usage.input_tokens" in refusal.value.detail


ACCEPTED: dict[str, tuple[bytes, str, Any]] = {
    "no messages at all": (body(messages=[]), "messages", []),
    "unknown fields": (body(x={"y": [CANARY]}), "conversation_id", "c1"),
    "minus zero": (body(sequence=0).replace(b'"sequence": 0', b'"sequence": -0'), "sequence", 0),
    "the largest sequence": (body(sequence=10**15 - 1), "sequence", 10**15 - 1),
    "no sequence": (BODY, "sequence", None),
    "the longest id": (body(conversation_id="é" * (MAX_ID_BYTES // 2)), "conversation_id", "é" * (MAX_ID_BYTES // 2)),
    "an id with braces and dots": (body(conversation_id="../{x}"), "conversation_id", "../{x}"),
    "the last of a repeated key": (BODY[:-1] + b',"conversation_id":"c2"}', "conversation_id", "c2"),
    "an inline policy": (body(policy={"preset": "x"}), "policy", {"preset": "x"}),
}


@pytest.mark.parametrize(("sent", "field", "value"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_a_body_that_is_only_unusual_is_taken(sent: bytes, field: str, value: Any) -> None:
    assert getattr(decode_snapshot(sent), field) == value


RAW_ITEMS = (
    rb'{"role":"user","content":"a\u0000b"}',
    rb'{ "b" : 1.50 , "a":1e3,"n":1E400, "i": 12345678901234567890123456789 }',
    b'{"role":"alien","role":"user","x":[ ]}',
    rb'"\ud83e\uddea and \u00e9"',
    b"-0.0",
    b"null",
    b'{"deep":' + b"[" * 100 + b"]" * 100 + b"}",
)


@pytest.mark.parametrize("item", RAW_ITEMS, ids=range(len(RAW_ITEMS)))
def test_an_item_keeps_its_bytes(item: bytes) -> None:
    snapshot = decode_snapshot(b'{"conversation_id":"c","messages":[ ' + item + b"\n]}")

    assert [bytes(raw) for raw in snapshot.messages] == [item]
    assert item in encode(snapshot)


def test_a_snapshot_survives_encoding() -> None:
    snapshot = decode_snapshot(
        body(sequence=4, policy={"count": "chars/4"}, metadata={"n": 1}, cuts=[{"at": 3}], tools=[])
    )

    assert decode_snapshot(encode(snapshot)) == snapshot

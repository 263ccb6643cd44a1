"""The catalogue of bad input: every row as the fields of a stream entry, and what must become of it."""

import gzip
import json
import pickle
from typing import Any, Final, NamedTuple

import msgspec
import zstandard

CANARY: Final = "CANARY-9f3"
RESULT: Final = "result"  # any result: pruned, unchanged, repaired

USER: Final = {"role": "user", "content": CANARY}
CALL: Final = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "t1", "name": "run", "input": {"q": CANARY}}],
}
ANSWER: Final = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": CANARY}]}


class Bad(NamedTuple):
    """One case: the catalogue's row number, what it is, the entry's fields, and its code or `result`."""

    row: int
    name: str
    fields: list[bytes]
    outcome: str
    is_heavy: bool = False

    @property
    def id(self) -> str:
        """How a test shows it."""
        return f"{self.row} {self.name}"


def text(**fields: Any) -> bytes:
    """A valid snapshot's body with some fields replaced."""
    return json.dumps({"conversation_id": "c-1", "messages": [USER]} | fields, ensure_ascii=False).encode()


GOOD: Final = text()
IN_TEXT: Final = CANARY.encode()


def item(content: bytes) -> bytes:
    """A body with one message of this raw content."""
    return b'{"conversation_id":"c-1","messages":[{"role":"user","content":' + content + b"}]}"


def raw_items(*items: bytes) -> bytes:
    """A body with these raw messages."""
    return b'{"conversation_id":"c-1","messages":[' + b",".join(items) + b"]}"


def extra(value: bytes) -> bytes:
    """A body with a field that nobody knows."""
    return GOOD[:-1] + b',"unknown":' + value + b"}"


def of_body(row: int, name: str, body: bytes, outcome: str, *siblings: bytes, is_heavy: bool = False) -> Bad:
    """A case that is all in the body."""
    return Bad(row, name, [b"__data__", body, *siblings], outcome, is_heavy)


def messages(row: int, name: str, *items: Any, outcome: str = RESULT) -> Bad:
    """A case that is all in the messages."""
    return of_body(row, name, text(messages=items), outcome)


def sequence(row: int, name: str, value: str, outcome: str) -> Bad:
    """A case that is all in the sequence number."""
    return of_body(row, name, GOOD[:-1] + b',"sequence":' + value.encode() + b"}", outcome)


def compressed(data: bytes) -> bytes:
    """One zstd frame."""
    return zstandard.ZstdCompressor().compress(data)


ENVELOPE: Final = json.dumps({"data": GOOD.decode(), "headers": {"reply_to": "leak"}}).encode()
BINARY_MAGIC: Final = b"\x89BIN\r\n\x1a\n"
GREEDY_HEADERS: Final = BINARY_MAGIC + b"\x00\x01" + b"\xff" * 10 + GOOD
SECRETS: Final = f"sk-{CANARY}-abcdefghijklmnop AKIA{CANARY} eyJhbGciOi.{CANARY}.sig"
HOSTILE_TEXT: Final = f"<script>{CANARY}</script><img onerror=x> javascript:{CANARY} \u202e"
LOG_SHAPED: Final = f'\n{{"level":"info","event":"{CANARY}"}}\n\x1b[2J'
LABELS: Final = f'{CANARY}"}}\nsecateur_balance{{x="'
CONTENTS: Final[list[Any]] = [None, "", [], 7, {}]
ONE_MB: Final = 2**20

ROWS: Final = [
    Bad(1, "no payload field", [b"data", IN_TEXT], "no_body"),
    of_body(3, "empty bytes", b"", "empty_body"),
    of_body(4, "unknown extra fields", GOOD, RESULT, b"x", IN_TEXT, b"traceparent", b"00-1"),
    Bad(5, "payload twice, different", [b"__data__", GOOD, b"__data__", text(workload="w")], "duplicate_field"),
    Bad(5, "payload twice, the same", [b"__data__", GOOD, b"__data__", GOOD], RESULT),
    of_body(6, "5 000 fields", GOOD, "too_many_fields", *[b"f", IN_TEXT] * 4_999),
    of_body(7, "names and values not UTF-8", GOOD, RESULT, b"\xff\xfe", b"\x80" + IN_TEXT),
    Bad(7, "no payload and nothing UTF-8", [b"\xff", b"\x80" + IN_TEXT], "no_body"),
    of_body(8, "truncated", GOOD[:-3], "not_json"),
    of_body(9, "trailing garbage", GOOD + b" " + IN_TEXT, "not_json"),
    of_body(10, "byte order mark", b"\xef\xbb\xbf" + GOOD, "not_json"),
    of_body(11, "UTF-16", GOOD.decode().encode("utf-16"), "not_utf8"),
    of_body(11, "latin-1", text(metadata="é").decode().encode("latin-1"), "not_utf8"),
    of_body(12, "invalid UTF-8 in a used string", GOOD.replace(b"c-1", b"c\xff"), "not_utf8"),
    of_body(13, "invalid UTF-8 in a skipped field", extra(b'"' + IN_TEXT + b'\xc3"'), "not_utf8"),
    of_body(14, "lone surrogate in an id", GOOD.replace(b"c-1", rb"\ud800"), "not_json"),
    of_body(14, "lone surrogate in a message", item(b'"' + IN_TEXT + rb'\ud800"'), "not_json"),
    of_body(14, "lone surrogate in an unknown field", extra(b'"' + IN_TEXT + rb'\udfff"'), "not_json"),
    of_body(16, "escaped control characters", item(b'"' + IN_TEXT + rb'\u0000\u001b[2J\u0085"'), RESULT),
    of_body(17, "raw control character", item(b'"' + IN_TEXT + b'\x01"'), "not_json"),
    *(of_body(18, name, item(name.encode()), "not_json") for name in ("NaN", "Infinity", "-Infinity")),
    sequence(19, "1e999 as a number of ours", "1e999", "out_of_range"),
    of_body(19, "1e999 in a message", item(b'[{"type":"text","text":"' + IN_TEXT + b'","n":1e999}]'), RESULT),
    of_body(20, "a fraction of a million digits", item(b"0." + b"1" * ONE_MB), RESULT),
    sequence(21, "5 000 digits", "9" * 5_000, "out_of_range"),
    of_body(21, "a million digits in a message", item(b"9" * ONE_MB), RESULT),
    *(sequence(22, f"sequence {value}", str(value), "out_of_range") for value in (10**15, 2**53 + 1, 2**64, 2**70)),
    sequence(23, "negative", "-1", "out_of_range"),
    sequence(24, "a fraction", "1.5", "wrong_shape"),
    sequence(25, "true", "true", "wrong_shape"),
    sequence(26, "a string", '"1"', "wrong_shape"),
    sequence(27, "minus zero", "-0", RESULT),
    of_body(28, "a key given twice", GOOD[:-1] + b',"conversation_id":"c-2"}', RESULT),
    Bad(28, "another conversation beside it", [b"__data__", GOOD, b"conversation_id", b"c-2"], "conversation_mismatch"),
    Bad(28, "the same conversation beside it", [b"__data__", GOOD, b"conversation_id", b"c-1"], RESULT),
    of_body(29, "nothing required is there", b'{"metadata":"' + IN_TEXT + b'"}', "wrong_shape"),
    of_body(30, "null messages", text(messages=None), "wrong_shape"),
    of_body(31, "messages an object", text(messages={CANARY: 1}), "wrong_shape"),
    of_body(32, "no messages at all", text(messages=[]), RESULT),
    of_body(33, "one message of 8 MB", text(messages=[USER | {"content": CANARY * 800_000}]), RESULT, is_heavy=True),
    of_body(34, "over the limit", text(metadata=CANARY * 4_000_000), "too_large", is_heavy=True),
    of_body(35, "500 000 tiny messages", raw_items(*[b'{"role":"a"}'] * 500_000), "too_many_messages", is_heavy=True),
    of_body(
        36, "2 000 000 empty arrays", item(b"[" + b"[]," * 2_000_000 + b"[]]"), "too_many_containers", is_heavy=True
    ),
    of_body(36, "as many arrays as allowed", item(b"[" + b"[]," * 599_900 + b"[]]"), RESULT, is_heavy=True),
    of_body(36, "brackets in a text", item(b'"' + IN_TEXT + rb"[{\\[{\"" * 600_000 + b'"'), RESULT, is_heavy=True),
    of_body(
        37,
        "500 000 distinct keys",
        item(json.dumps([dict.fromkeys(map(str, range(500_000)), 1)]).encode()),
        RESULT,
        is_heavy=True,
    ),
    of_body(38, "nested 100 deep", item(b"[" * 100 + b"]" * 100), "too_deep"),
    of_body(38, "nested 990 deep", item(b"[" * 990 + b"]" * 990), "too_deep"),
    of_body(39, "nested 100 000 deep", item(b"[" * 100_000 + b"]" * 100_000), "too_deep"),
    of_body(41, "deep in an unknown field", extra(b'{"a":' * 5_000 + b"1" + b"}" * 5_000), "too_deep"),
    of_body(41, "deep and unclosed", extra(b"[" * 5_000), "too_deep"),
    of_body(42, "keys that collide", item(json.dumps([{"a" * n: 1 for n in range(2_000)}]).encode()), RESULT),
    messages(43, "unknown role", USER, {"role": CANARY, "content": CANARY}),
    messages(43, "system in the middle", USER, {"role": "system", "content": CANARY}, USER),
    messages(44, "result without call", USER, ANSWER),
    messages(45, "call without result", USER, CALL, USER),
    messages(46, "an id used twice", USER, CALL, ANSWER, CALL, ANSWER),
    messages(47, "result before call", USER, ANSWER, CALL),
    *(messages(48, f"content {value!r}", {"role": "user", "content": value}, USER) for value in CONTENTS),
    messages(48, "items that are no objects", None, 1, CANARY, [CANARY], True, outcome="unknown_format"),
    messages(49, "unknown block", {"role": "user", "content": [{"type": CANARY, "x": [1.50]}]}),
    of_body(
        50,
        "10 MB of base64",
        text(
            messages=[
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" * 950_000},
                        }
                    ],
                }
            ]
        ),
        RESULT,
        is_heavy=True,
    ),
    messages(
        51,
        "broken arguments",
        USER,
        {
            "role": "assistant",
            "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": '{"q": ' + CANARY}}],
        },
    ),
    messages(
        52,
        "signed thinking",
        USER,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": CANARY, "signature": "c2ln"},
                {"type": "text", "text": CANARY},
            ],
        },
    ),
    of_body(57, "id of 10 KB", text(conversation_id=CANARY * 1_000), "bad_conversation_id"),
    of_body(57, "id empty", text(conversation_id=""), "bad_conversation_id"),
    of_body(57, "id with a newline", text(conversation_id=f"{CANARY}\n"), "bad_conversation_id"),
    of_body(57, "id that climbs", text(conversation_id="../{x}"), RESULT),
    of_body(58, "inbox of somebody else", text(inbox="}:other:pruned"), "bad_inbox"),
    of_body(59, "newer version", text(version=2), "unsupported_version"),
    of_body(60, "bomb", compressed(bytes(2**30)), "inflates_too_large", b"enc", b"zstd", is_heavy=True),
    of_body(61, "truncated frame", compressed(GOOD)[:-3], "bad_encoding", b"enc", b"zstd"),
    of_body(61, "trailing bytes", compressed(GOOD) + IN_TEXT, "bad_encoding", b"enc", b"zstd"),
    of_body(61, "not compressed at all", GOOD, "bad_encoding", b"enc", b"zstd"),
    of_body(61, "unknown compression", GOOD, "bad_encoding", b"enc", IN_TEXT),
    of_body(62, "compressed twice", compressed(compressed(GOOD)), "bad_encoding", b"enc", b"zstd"),
    of_body(62, "gzip without a word", gzip.compress(GOOD), "not_utf8"),
    *(
        of_body(63, f"reference {url[:8]}", json.dumps({"ref": url + CANARY}).encode(), "wrong_shape")
        for url in ("http://169.254.169.254/", "file:///etc/passwd", "redis://other/")
    ),
    Bad(64, "reference field", [b"ref", b"{other}:blob:" + IN_TEXT], "no_body"),
    of_body(65, "pickle", pickle.dumps(CANARY), "not_utf8"),
    of_body(65, "YAML", b"conversation_id: c\nmessages: [" + IN_TEXT + b"]\n", "not_json"),
    of_body(65, "MessagePack", msgspec.msgpack.encode({"messages": [USER]}), "not_utf8"),
    messages(66, "text against regular expressions", USER | {"content": CANARY + "a" * ONE_MB + "!"}),
    messages(67, "markup", USER | {"content": HOSTILE_TEXT}),
    messages(67, "one line of 1 MB", USER | {"content": CANARY + "x" * ONE_MB}),
    messages(68, "text shaped like a log", USER | {"content": LOG_SHAPED}),
    messages(69, "secrets", USER | {"content": SECRETS}),
    messages(
        70,
        "a tool named like a label",
        USER,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": LABELS, "input": {}}]},
    ),
    of_body(71, "binary magic with greedy headers", GREEDY_HEADERS, "not_utf8"),
    of_body(71, "binary magic alone", BINARY_MAGIC, "not_utf8"),
    of_body(72, "an envelope of another framework", ENVELOPE, "wrong_shape"),
    of_body(72, "a snapshot that also has data", extra(b'"x"').replace(b"unknown", b"data"), RESULT),
    of_body(73, "reply_to beside the body", GOOD, RESULT, b"reply_to", b"leak", b"correlation_id", IN_TEXT),
    of_body(74, "a clock of the year 5138", text(taken_at=99_999_999_999_999), RESULT),
]
# Not cases of one entry, with tests of their own: deleted while pending, slicing, small stacks, two snapshots.
ELSEWHERE: Final = frozenset({2, 15, 40, 53, 54, 55, 56})

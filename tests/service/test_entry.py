"""Entry: every stream entry becomes a settlement; what is wrong with it is a code, never an exception or a quote."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipeline
from contracts import Code, Metrics, Policy, Pruned, Refused, Snapshot, load_policy
from service.entry import Desk, find_body, find_policy, prune_entry
from service.settle import Entry, Settlement

CANARY = "CANARY-9f3"
MESSAGES = [{"role": "user", "content": CANARY}]
DESK = Desk("tester", "{main}:snapshots:batch", load_policy(""), 100_000, 4)


def entry(body: Any, *fields: bytes, stream: str = "{main}:snapshots", attempts: int = 0) -> Entry:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Entry(stream, "1700000000000-0", [b"__data__", text, *fields], attempts)


def snapshot(**fields: Any) -> dict[str, Any]:
    return {"conversation_id": "c-1", "messages": MESSAGES} | fields


def code_of(settlement: Settlement) -> str:
    return settlement.refusal.code.value if settlement.refusal else "none"


def test_a_good_entry_gets_its_result_and_its_metrics() -> None:
    settlement = prune_entry(entry(snapshot(snapshot_id="s-1", sequence=7, inbox="me")), DESK)

    result = msgspec.json.decode(settlement.result, type=Pruned)
    assert (result.snapshot_id, result.status, settlement.sequence, settlement.inbox) == ("s-1", "unchanged", 7, "me")
    metrics = msgspec.json.decode(settlement.row, type=Metrics)
    assert metrics == settlement.metrics
    assert (metrics.entry_id, metrics.worker, metrics.policy) == ("1700000000000-0", "tester", "steady")
    assert (metrics.messages_before, metrics.messages_after) == (1, 1)
    assert metrics.bytes_after == len(settlement.result)
    assert metrics.queue_delay_ms > 0
    assert {"compress", "collapse", "prune", "validate"} <= metrics.stages.keys()


def test_what_the_stages_did_is_counted_by_stage() -> None:
    messages = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"{n} words " * 20} for n in range(12)]
    policy = {"prune": {"strategy": "sliding_window", "max_turns": 4}}

    metrics = prune_entry(entry(snapshot(messages=messages, policy=policy)), DESK).metrics

    assert metrics.status == "pruned"
    assert metrics.messages_after < metrics.messages_before == 12
    assert metrics.tokens_after < metrics.tokens_before
    assert metrics.stages["prune"].edits > 0
    assert metrics.stages["prune"].tokens_saved > 0


@pytest.mark.parametrize(
    ("stream", "expected"),
    [("{main}:snapshots", "e:1700000000000-0"), ("{main}:snapshots:batch", "e:batch:1700000000000-0")],
)
def test_a_snapshot_without_an_id_is_named_after_its_entry(stream: str, expected: str) -> None:
    settlement = prune_entry(entry(snapshot(), stream=stream), DESK)

    assert settlement.snapshot_id == expected
    assert not settlement.is_resendable
    assert msgspec.json.decode(settlement.result, type=Pruned).snapshot_id == expected


def test_an_id_that_looks_like_ours_is_still_the_producers() -> None:
    assert prune_entry(entry(snapshot(snapshot_id="e:mine")), DESK).is_resendable


@pytest.mark.parametrize("status", ["superseded", "duplicate"])
def test_the_short_forms_are_contracts_once_the_outcome_is_put_in_front(status: str) -> None:
    settlement = prune_entry(entry(snapshot(snapshot_id="s-1", metadata={"k": [1]})), DESK)
    outcome = f'{{"status":"{status}","reason":["x"],'.encode()

    result = msgspec.json.decode(outcome + settlement.short_result, type=Pruned)
    row = msgspec.json.decode(outcome + settlement.short_row, type=Metrics)

    assert (result.snapshot_id, result.status, row.snapshot_id, row.status) == ("s-1", status, "s-1", status)
    assert not result.messages
    assert CANARY.encode() not in settlement.short_result + settlement.short_row + settlement.row


DEEP = b'{"conversation_id":"c","messages":[' + b"[" * 2_000 + b"]" * 2_000 + b"]}"
NESTED = b'{"conversation_id":"c","messages":[{"role":"user","content":' + b"[" * 80 + b"]" * 80 + b"}]}"

BAD = {
    "empty": (b"", "empty_body"),
    "not JSON": (b"{" + CANARY.encode(), "not_json"),
    "trailing garbage": (b'{"conversation_id":"c","messages":[]} x', "not_json"),
    "NaN": (b'{"conversation_id":"c","messages":[NaN]}', "not_json"),
    "byte order mark": (b"\xef\xbb\xbf{}", "not_json"),
    "UTF-16": ("{}".encode("utf-16"), "not_utf8"),
    "not UTF-8": (b'{"conversation_id":"\xff","messages":[]}', "not_utf8"),
    "pickle": (b"\x80\x04\x95.", "not_utf8"),
    "an array": (json.dumps(MESSAGES).encode(), "wrong_shape"),
    "no messages": (b'{"conversation_id":"c"}', "wrong_shape"),
    "null messages": (b'{"conversation_id":"c","messages":null}', "wrong_shape"),
    "messages as object": (b'{"conversation_id":"c","messages":{}}', "wrong_shape"),
    "negative sequence": (json.dumps(snapshot(sequence=-1)).encode(), "out_of_range"),
    "huge sequence": (json.dumps(snapshot(sequence=10**15)).encode(), "out_of_range"),
    "sequence as text": (json.dumps(snapshot(sequence="1")).encode(), "wrong_shape"),
    "newer version": (json.dumps(snapshot(version=99)).encode(), "unsupported_version"),
    "control character in id": (json.dumps(snapshot(conversation_id="a\nb")).encode(), "bad_conversation_id"),
    "endless id": (json.dumps(snapshot(conversation_id="x" * 300)).encode(), "bad_conversation_id"),
    "bad snapshot id": (json.dumps(snapshot(snapshot_id="\x1b[2J")).encode(), "bad_snapshot_id"),
    "bad inbox": (json.dumps(snapshot(inbox="../up")).encode(), "bad_inbox"),
    "too deep for the parser": (DEEP, "too_deep"),
    "too deep for us": (NESTED, "too_deep"),
    "too large": (json.dumps(snapshot(metadata="x" * 100_000)).encode(), "too_large"),
    "unknown format": (json.dumps(snapshot(format=CANARY)).encode(), "unknown_format"),
    "unknown policy": (json.dumps(snapshot(policy=CANARY)).encode(), "unknown_policy"),
    "bad policy": (json.dumps(snapshot(policy={"prune": {"strategy": "x"}})).encode(), "bad_policy"),
}


@pytest.mark.parametrize(("body", "code"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused_with_its_code_and_without_a_quote(body: bytes, code: str) -> None:
    settlement = prune_entry(entry(body), DESK)

    assert code_of(settlement) == code
    assert settlement.metrics.status == "refused"
    assert settlement.metrics.reason == [code]
    assert settlement.refusal
    if code != "unknown_policy":  # a policy's name may be repeated: it is how the nearest right one is told
        assert CANARY not in settlement.refusal.detail
    assert CANARY.encode() not in settlement.row


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ([], "no_body"),
        ([b"data", b"{}"], "no_body"),
        ([b"\xff", b"\xfe"], "no_body"),
        ([b"__data__", b"{}", b"__data__", b"[]"], "duplicate_field"),
        ([b"a", b"b"] * 65, "too_many_fields"),
        ([b"__data__", b"{}", b"junk", b"x" * 200_000], "too_large"),
        ([b"__data__", b"{}", b"enc", b"zstd"], "bad_encoding"),
    ],
)
def test_an_entry_of_the_wrong_fields_is_refused(fields: list[bytes], code: str) -> None:
    settlement = prune_entry(Entry("{main}:snapshots", "1700000000000-0", fields), DESK)

    assert code_of(settlement) == code


def test_extra_fields_are_ignored_and_a_reply_to_is_one_of_them() -> None:
    settlement = prune_entry(entry(snapshot(), b"reply_to", b"somewhere", b"traceparent", b"\xff"), DESK)

    assert settlement.refusal is None


def test_the_same_body_twice_is_one_body() -> None:
    assert find_body([b"__data__", b"{}", b"__data__", b"{}"], 100) == b"{}"


def test_a_suspect_over_its_attempts_is_refused_unseen() -> None:
    settlement = prune_entry(entry(b"whatever kills", attempts=5), DESK)

    assert code_of(settlement) == "crashed"
    assert settlement.metrics.attempts == 4


def test_a_suspect_within_its_attempts_is_run() -> None:
    assert prune_entry(entry(snapshot(), attempts=4), DESK).metrics.attempts == 4


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError(CANARY), Code.INTERNAL),
        (MemoryError(), Code.OUT_OF_MEMORY),
        (RecursionError(), Code.TOO_DEEP),
        (Refused(Code.INVALID_INPUT, "pairing"), Code.INVALID_INPUT),
    ],
)
def test_a_fault_in_the_pipeline_is_a_refusal_that_keeps_the_ids(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: Code
) -> None:
    def fail(snapshot: Snapshot, policy: Policy, *, around: object) -> Pruned:
        raise error

    monkeypatch.setattr(pipeline, "prune", fail)
    settlement = prune_entry(entry(snapshot(snapshot_id="s-1")), DESK)

    assert settlement.refusal
    assert settlement.refusal.code is code
    assert CANARY not in settlement.refusal.detail
    assert (settlement.snapshot_id, settlement.conversation_id) == ("s-1", "c-1")


def test_a_fault_of_ours_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "count_after", lambda *_: 1 // 0)

    settlement = prune_entry(entry(snapshot()), DESK)

    assert settlement.refusal
    assert settlement.refusal.detail.startswith("ZeroDivisionError at service/test_entry.py:")


def test_a_policy_is_built_once() -> None:
    default = load_policy("")
    inline = {"prune": {"strategy": "sliding_window", "max_turns": 3}}

    assert find_policy("", default) is default
    assert find_policy("beskar", default) is find_policy("beskar", default)
    assert find_policy(inline, default) is find_policy(dict(inline), default)


@given(st.lists(st.tuples(st.sampled_from([b"__data__", b"x", b"enc"]), st.binary(max_size=60)), max_size=4))
def test_any_fields_give_a_settlement(pairs: list[tuple[bytes, bytes]]) -> None:
    fields = [part for pair in pairs for part in pair]

    settlement = prune_entry(Entry("{main}:snapshots", "1700000000000-0", fields), DESK)

    assert settlement.refusal or settlement.result


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(JSON_VALUES, max_size=4), st.sampled_from(["auto", "anthropic", "openai-chat", "gemini"]))
def test_any_messages_give_a_settlement_and_never_a_fault_of_ours(messages: list[Any], format: str) -> None:
    settlement = prune_entry(entry(snapshot(messages=messages, format=format)), DESK)

    assert code_of(settlement) != "internal"

"""Old and new side by side: what a later version adds is passed over, what an earlier one lacks has its default."""

from typing import Any

import msgspec
import pytest

from contracts import Code, Metrics, Pruned, Refused, Snapshot, decode_snapshot, encode

SNAPSHOT: dict[str, Any] = {"conversation_id": "c-1", "messages": [{"role": "user", "content": "hello"}]}
PRUNED: dict[str, Any] = {
    "snapshot_id": "s-1",
    "conversation_id": "c-1",
    "sequence": None,
    "workload": "default",
    "format": "anthropic",
    "policy": {"name": "steady", "hash": "0"},
    "status": "unchanged",
    "reason": [],
    "edits": [],
    "cuts": [],
    "first_changed_index": None,
    "tokens": {"before": 1, "after": 1, "method": "estimate"},
    "counts": {},
    "summary": "",
}
METRICS: dict[str, Any] = {
    "entry_id": "1-1",
    "snapshot_id": "s-1",
    "conversation_id": "c-1",
    "workload": "default",
    "status": "pruned",
    "worker": "w",
}
LATER: dict[str, Any] = {"later": {"deep": [1, None]}}


@pytest.mark.parametrize(("kind", "fields"), [(Snapshot, SNAPSHOT), (Pruned, PRUNED), (Metrics, METRICS)])
def test_fields_of_a_later_version_are_passed_over(kind: Any, fields: dict[str, Any]) -> None:
    assert msgspec.json.decode(encode(fields | LATER), type=kind) == msgspec.json.decode(encode(fields), type=kind)


@pytest.mark.parametrize("part", ["policy", "tokens", "counts"])
def test_fields_inside_a_result_may_come_later_too(part: str) -> None:
    later = PRUNED | {part: PRUNED[part] | LATER}

    assert msgspec.json.decode(encode(later), type=Pruned) == msgspec.json.decode(encode(PRUNED), type=Pruned)


def test_a_snapshot_of_a_later_version_is_refused_by_code_and_can_be_replayed() -> None:
    with pytest.raises(Refused) as refused:
        decode_snapshot(encode(SNAPSHOT | {"version": 2}))

    assert refused.value.code is Code.UNSUPPORTED_VERSION


def test_the_first_fields_of_a_snapshot_are_still_enough() -> None:
    assert decode_snapshot(encode(SNAPSHOT)).snapshot_id == ""

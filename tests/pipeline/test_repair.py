"""Repair: what cannot be mended as it came is tried again when the stages are done."""

import json
from typing import Any

from contracts import Pruned, decode_snapshot, load_policy
from pipeline import prune
from pipeline.conversation import read_conversation
from pipeline.tokens import counter

SMALLEST = {"prune": {"strategy": "token_budget", "max_tokens": 1}}


def use(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "read", "input": {}}


def answer(call_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "done"}


def run(messages: list[dict[str, Any]]) -> Pruned:
    body = {"conversation_id": "c1", "format": "anthropic", "messages": messages}
    return prune(decode_snapshot(json.dumps(body).encode()), load_policy(SMALLEST))


def test_what_hindered_a_repair_may_be_gone_after_the_cut() -> None:
    hopeless = {"role": "user", "content": [use("c1")]}  # a call that no model made
    twins = [
        {"role": "assistant", "content": [use("D"), use("D")]},
        {"role": "user", "content": [answer("D"), answer("D")]},
    ]
    talk = [{"role": "user", "content": "and then? " * 20}, {"role": "assistant", "content": "well"}]

    result = run([{"role": "assistant", "content": "once " * 40}, hopeless, *talk, *twins])

    assert isinstance(result.messages, list)
    assert not read_conversation(result.messages, "anthropic", counter("estimate")).broken_rules
    assert "input_repaired" in result.reason
    assert "input_invalid" not in result.reason

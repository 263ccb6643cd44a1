"""Small arrays for tests, in the two plainest wire formats."""

from typing import Any

import msgspec
from msgspec import Raw

from contracts import Pruned, Snapshot, load_policy, raw
from pipeline import prune


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def calls(*ids: str, name: str = "search") -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": i, "name": name, "input": {}} for i in ids]}


def results(*ids: str, text: str = "found") -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": i, "content": text} for i in ids]}


def chat_calls(*ids: str, name: str = "search") -> dict[str, Any]:
    made = [{"id": i, "type": "function", "function": {"name": name, "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def chat_result(call_id: str, text: str = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def raws(messages: list[dict[str, Any]]) -> list[Raw]:
    return [raw(message) for message in messages]


def run(
    messages: list[dict[str, Any]], policy: str | dict[str, Any], format: Any = "anthropic", **fields: Any
) -> Pruned:
    """The result of one run over plain messages."""
    return prune(Snapshot("c", raws(messages), format=format, **fields), load_policy(policy))


def plain(pruned: Pruned) -> list[dict[str, Any]]:
    """The published messages as plain values."""
    assert isinstance(pruned.messages, list)
    return [msgspec.json.decode(item) for item in pruned.messages]

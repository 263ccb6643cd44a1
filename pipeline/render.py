"""Render: what a model sees of a session in which outputs were marked compacted."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from pipeline.dialects.opencode import is_compacted
from pipeline.notices import COMPACTED
from pipeline.splice import Change, splice

_plain = msgspec.json.Decoder(float_hook=str)


def render_compacted(messages: Sequence[Raw]) -> list[Raw]:
    """The context view of an OpenCode session: compacted outputs read `[compacted]`, all else is byte for byte."""
    return [_rendered(item) for item in messages]


def _rendered(item: Raw) -> Raw:
    data = bytes(item)
    if b"compacted" not in data and b"\\u" not in data:
        return item
    value = _plain.decode(data)
    parts = value.get("parts") if isinstance(value, dict) else None
    changes = [
        change for i, part in enumerate(parts if isinstance(parts, list) else ()) for change in _excluded(part, i)
    ]
    return splice(item, changes) if changes else item


def _excluded(part: Any, i: int) -> list[Change]:
    state = part.get("state") if isinstance(part, dict) and part.get("type") == "tool" else None
    if not isinstance(state, dict) or not is_compacted(state) or state.get("output") == COMPACTED:
        return []
    return [(("parts", i, "state", "output"), COMPACTED)]

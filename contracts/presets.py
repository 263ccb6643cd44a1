"""Presets: policies by name, as plain data, so that an inline policy can start from one and change a field."""

from typing import Any, Final

DEFAULT_PRESET: Final = "beskar"

PRESETS: Final[dict[str, dict[str, Any]]] = {
    "beskar": {
        "count": "chars/4",
        "compress": {"max_tool_result_tokens": 2_000},
        "collapse": {"after_turns": 20, "into": "assistant", "multi_tool": False},
        "prune": {"strategy": "sliding_window", "max_turns": 40},
    },
}

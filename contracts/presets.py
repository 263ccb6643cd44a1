"""Presets: policies by name, as plain data, so that an inline policy can start from one and change a field."""

from typing import Any, Final

DEFAULT_PRESET: Final = "steady"

# Cached read and cache write per token, relative to plain input.
CACHE_PRICES: Final[dict[str, tuple[float, float]]] = {
    "anthropic-5m": (0.1, 1.25),
    "anthropic-1h": (0.1, 2.0),
    "openai": (0.1, 1.0),
    "gemini": (0.1, 1.0),
}

PRESETS: Final[dict[str, dict[str, Any]]] = {
    "steady": {
        "budget": {"max_tokens": 100_000},
        "keep": {"first_user": True},
        "prune": {
            "strategy": "steady",
            "tool_roles": {
                "Read": {"argument": "file_path"},
                "Write": {"argument": "file_path", "access": "write"},
                "read": {"argument": "filePath"},
                "write": {"argument": "filePath", "access": "write"},
                "read_file": {"argument": "path"},
                "write_file": {"argument": "path", "access": "write"},
            },
        },
    },
    "beskar": {
        "count": "chars/4",
        "compress": {"max_tool_result_tokens": 2_000},
        "collapse": {"after_turns": 20, "into": "assistant", "multi_tool": False},
        "prune": {"strategy": "sliding_window", "max_turns": 40},
    },
    "xzatoma": {
        "count": "chars/4",
        "prune": {"strategy": "token_budget", "max_tokens": 100_000},
    },
    "tessera": {
        "count": "chars/4",
        "gate": {"messages_over": 12, "chars_over": 32_768},
        "compress": {"rag": {"threshold": 0.1, "fence": "context"}},
        "prune": {"strategy": "middle_out", "last_turns": 8, "keep_middle_pairs": True},
        "composition": {"max_mutations": 1, "priority": ["prune", "compress", "collapse"]},
    },
    "opencode": {
        "count": "chars/4",
        "compress": {
            "mask": {
                "protect_tokens": 40_000,
                "minimum_tokens": 20_000,
                "active_user_turns": 2,
                "protected_tools": ["skill"],
            }
        },
    },
}

"""Policies to hold the promises against: every preset, strategy and option, and settings far harsher than anyone's."""

from typing import Any, Final

from msgspec import Struct
from msgspec.structs import fields

from contracts import PRESETS, Policy, load_policy
from pipeline import STRATEGIES

HARSH: Final[dict[str, dict[str, Any]]] = {
    "window 1": {"prune": {"strategy": "sliding_window", "max_turns": 1}},
    "budget 500": {"prune": {"strategy": "token_budget", "max_tokens": 500}},
    "stub after 0": {"collapse": {"after_turns": 0, "into": "stub"}},
    "assistant after 0": {"collapse": {"after_turns": 0, "into": "assistant"}},
    "user after 0": {"collapse": {"after_turns": 0, "into": "user"}},
    "cap 50": {"compress": {"max_tool_result_tokens": 50}},
}

INLINE: Final[dict[str, dict[str, Any]]] = {
    "nothing": {},
    "window 0": {"prune": {"strategy": "sliding_window", "max_turns": 0}},
    "window drop": {"prune": {"strategy": "sliding_window", "max_turns": 2, "boundary": "drop"}},
    "window rounds": {"turn": "round", "prune": {"strategy": "sliding_window", "max_turns": 1}},
    "window users": {"turn": "user", "prune": {"strategy": "sliding_window", "max_turns": 1, "boundary": "drop"}},
    "window kept": {
        "keep": {"system": False, "first_user": True, "last": 2, "tools": ["read"]},
        "prune": {"strategy": "sliding_window", "max_turns": 1},
    },
    "window pinned": {"keep": {"positions": [1, 3]}, "prune": {"strategy": "sliding_window", "max_turns": 1}},
    "collapse pinned": {"keep": {"positions": [2]}, "collapse": {"after_turns": 0, "into": "user"}},
    "window exact": {"count": "o200k_base", "prune": {"strategy": "sliding_window", "max_turns": 2}},
    "summarize 0": {"prune": {"strategy": "summarize", "max_turns": 0}},
    "summarize 2": {"count": "chars/4", "prune": {"strategy": "summarize", "max_turns": 2}},
    "summarize rounds": {"turn": "round", "thinking": "keep", "prune": {"strategy": "summarize", "max_turns": 2}},
    "summarize users": {
        "turn": "user",
        "keep": {"first_user": True},
        "prune": {"strategy": "summarize", "max_turns": 1},
    },
    "importance 1": {"prune": {"strategy": "importance", "max_turns": 1}},
    "importance rounds": {"turn": "round", "prune": {"strategy": "importance", "max_turns": 2}},
    "importance users": {
        "turn": "user",
        "keep": {"system": False},
        "prune": {"strategy": "importance", "max_turns": 1},
    },
    "budget 1": {"prune": {"strategy": "token_budget", "max_tokens": 1}},
    "budget 60": {"count": "chars/4", "prune": {"strategy": "token_budget", "max_tokens": 60}},
    "budget rounds": {"turn": "round", "keep": {"last": 2}, "prune": {"strategy": "token_budget", "max_tokens": 120}},
    "budget exact": {"count": "cl100k_base", "prune": {"strategy": "token_budget", "max_tokens": 100}},
    "middle out 0": {"prune": {"strategy": "middle_out", "last_turns": 0, "keep_middle_pairs": False}},
    "middle out 2": {"prune": {"strategy": "middle_out", "last_turns": 2}},
    "middle out rounds": {
        "turn": "round",
        "prune": {"strategy": "middle_out", "last_turns": 1, "keep_middle_pairs": False},
    },
    "cap 0": {"compress": {"max_tool_result_tokens": 0}},
    "cap 5 head_tail": {"compress": {"max_tool_result_tokens": 5, "shape": "head_tail"}},
    "cap 20 head_tail": {"count": "chars/4", "compress": {"max_tool_result_tokens": 20, "shape": "head_tail"}},
    "cap 5 condense": {"compress": {"max_tool_result_tokens": 5, "shape": "condense"}},
    "cap 20 condense": {"count": "calibrated", "compress": {"max_tool_result_tokens": 20, "shape": "condense"}},
    "mask all": {"compress": {"mask": {"protect_tokens": 0, "minimum_tokens": 0, "active_user_turns": 0}}},
    "mask some": {
        "compress": {
            "mask": {"protect_tokens": 20, "minimum_tokens": 20, "active_user_turns": 1, "protected_tools": ["read"]}
        }
    },
    "rerank": {"compress": {"rag": {"threshold": 0.1}}},
    "rerank all away": {"compress": {"rag": {"threshold": 1.0, "fence": "documents"}}},
    "stub singles": {"collapse": {"after_turns": 1, "into": "stub", "multi_tool": False}, "keep": {"tools": ["read"]}},
    "assistant after 2": {"count": "chars/4", "collapse": {"after_turns": 2, "into": "assistant", "multi_tool": False}},
    "user after 2": {"thinking": "refuse", "collapse": {"after_turns": 2, "into": "user"}},
    "thinking kept": {"thinking": "keep", "collapse": {"after_turns": 0}, "compress": {"max_tool_result_tokens": 3}},
    "thinking refused": {"thinking": "refuse", "prune": {"strategy": "sliding_window", "max_turns": 3}},
    "trust": {"validate": {"input": "trust"}, "prune": {"strategy": "sliding_window", "max_turns": 1}},
    "trust everything": {
        "validate": {"input": "trust"},
        "compress": {"max_tool_result_tokens": 2},
        "collapse": {"after_turns": 1, "into": "assistant"},
        "prune": {"strategy": "token_budget", "max_tokens": 40},
    },
    "reject": {"validate": {"input": "reject"}, "prune": {"strategy": "summarize", "max_turns": 1}},
    "gate": {
        "gate": {"messages_over": 6, "chars_over": 2_000},
        "prune": {"strategy": "sliding_window", "max_turns": 1},
    },
    "one mutation": {
        "composition": {"max_mutations": 1},
        "compress": {"max_tool_result_tokens": 3, "rag": {"threshold": 0.2}},
        "collapse": {"after_turns": 1, "into": "stub"},
        "prune": {"strategy": "middle_out", "last_turns": 1},
    },
    "two mutations": {
        "composition": {"max_mutations": 2, "priority": ["collapse", "compress", "prune"]},
        "compress": {"max_tool_result_tokens": 3},
        "collapse": {"after_turns": 1, "into": "user"},
        "prune": {"strategy": "summarize", "max_turns": 2},
    },
    "everything": {
        "count": "chars/4",
        "compress": {
            "max_tool_result_tokens": 4,
            "shape": "condense",
            "mask": {"protect_tokens": 10, "minimum_tokens": 0},
        },
        "collapse": {"after_turns": 1, "into": "assistant"},
        "prune": {"strategy": "importance", "max_turns": 4},
    },
    "steady tight": {"preset": "steady", "budget": {"max_tokens": 200, "low_water": 0.5}, "keep": {"last": 1}},
    "steady tiny": {"prune": {"strategy": "steady", "keep_rounds": 1}, "budget": {"max_tokens": 60}},
    "steady rounds": {
        "turn": "round",
        "keep": {"last": 2, "tools": ["skill"]},
        "budget": {"max_tokens": 300, "high_water": 0.7, "low_water": 0.3},
        "prune": {"strategy": "steady", "keep_rounds": 2, "evidence_share": 0.4, "notice_share": 0.3},
    },
    "steady roles": {
        "count": "chars/4",
        "thinking": "keep",
        "budget": {"max_tokens": 150, "low_water": 0.9},
        "prune": {"strategy": "steady", "keep_rounds": 1, "tool_roles": {"read": {"argument": "path"}}},
    },
    "steady users": {
        "turn": "user",
        "keep": {"system": False},
        "count": "o200k_base",
        "budget": {"max_tokens": 100, "low_water": 0.1},
        "prune": {"strategy": "steady", "notice_share": 0},
    },
    "steady capped": {
        "preset": "steady",
        "compress": {"max_tool_result_tokens": 30},
        "collapse": {"after_turns": 4, "into": "user"},
        "budget": {"max_tokens": 120},
    },
    "steady trusting": {"preset": "steady", "validate": {"input": "trust"}, "budget": {"max_tokens": 100}},
}


def _load(sources: dict[str, Any]) -> dict[str, Policy]:
    return {name: load_policy(source) for name, source in sources.items()}


def _plainest(strategy: str, kind: type[Struct]) -> dict[str, Any]:
    """A strategy with nothing but what it cannot do without."""
    return {"prune": {"strategy": strategy, **{field.name: 1 for field in fields(kind) if field.required}}}


PRESET_POLICIES: Final = _load({name: name for name in PRESETS})
HARSH_POLICIES: Final = _load(HARSH)
_WRITTEN: Final = PRESET_POLICIES | HARSH_POLICIES | _load(INLINE)


def tag(kind: type) -> str:
    """The name by which a policy asks for a strategy."""
    return str(kind.__struct_config__.tag)  # type: ignore[attr-defined]


# A strategy that nobody wrote a policy for is held to the promises all the same.
_FOUND: Final = {
    tag(kind): _plainest(tag(kind), kind)
    for kind, _ in STRATEGIES
    if not any(isinstance(policy.prune, kind) for policy in _WRITTEN.values())
}
POLICIES: Final = _WRITTEN | _load(_FOUND)

"""Loading a policy: presets, merging part by part, and refusals that say what to write instead."""

from typing import Any

import msgspec
import pytest

from contracts import DEFAULT_PRESET, PRESETS, Code, Policy, Refused, encode, json_schemas, load_policy
from contracts.policy import SlidingWindow, Summarize, TokenBudget, known_strategies

CANARY = "CANARY 9f3"


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_loads_under_its_name(name: str) -> None:
    assert load_policy(name).name == name
    assert load_policy({"preset": name}) == load_policy(name)


def test_an_empty_name_means_the_default() -> None:
    assert load_policy("") == load_policy(DEFAULT_PRESET)


def test_without_a_preset_the_base_is_empty() -> None:
    assert load_policy({}) == Policy()
    assert load_policy({}).prune is None
    assert load_policy({}).validate.input == "repair"


def test_parts_merge_field_by_field() -> None:
    policy = load_policy({"preset": "beskar", "compress": {"shape": "head_tail"}, "prune": {"max_turns": 3}})

    assert policy.compress.shape == "head_tail"
    assert policy.compress.max_tool_result_tokens == load_policy("beskar").compress.max_tool_result_tokens
    assert policy.prune == SlidingWindow(max_turns=3)


def test_another_strategy_replaces_the_old_one_whole() -> None:
    assert load_policy({"preset": "beskar", "prune": {"strategy": "summarize", "max_turns": 2}}).prune == Summarize(2)
    assert load_policy(
        {"preset": "beskar", "prune": {"strategy": "token_budget", "max_tokens": 9}}
    ).prune == TokenBudget(9)


def test_a_part_can_be_taken_away() -> None:
    assert load_policy({"preset": "beskar", "prune": None}).prune is None


def test_loading_leaves_the_source_alone() -> None:
    source = {"preset": "beskar", "keep": {"tools": ["read"]}}

    load_policy(source)

    assert source == {"preset": "beskar", "keep": {"tools": ["read"]}}
    assert load_policy("beskar").keep.tools == ()


def test_the_hash_is_of_the_meaning() -> None:
    assert load_policy({"preset": "beskar"}).hash == load_policy("beskar").hash
    assert load_policy({"preset": "beskar", "turn": "round"}).hash != load_policy("beskar").hash


REFUSED: dict[str, tuple[str | dict[str, Any], Code, str]] = {
    "misspelt preset": ("beskr", Code.UNKNOWN_POLICY, "did you mean 'beskar'?"),
    "misspelt base": ({"preset": "beskr"}, Code.UNKNOWN_POLICY, "did you mean 'beskar'?"),
    "unknown preset": ("qqq", Code.UNKNOWN_POLICY, "known: "),
    "preset with text in it": (CANARY, Code.UNKNOWN_POLICY, "(unprintable)"),
    "preset not a name": ({"preset": 3}, Code.BAD_POLICY, "preset must be a string"),
    "misspelt part": ({"colapse": {}}, Code.BAD_POLICY, "did you mean 'collapse'?"),
    "misspelt field": ({"compress": {"max_tool_result_token": 5}}, Code.BAD_POLICY, "'max_tool_result_tokens'"),
    "misspelt field of a part of a part": (
        {"compress": {"mask": {"protect_token": 5}}},
        Code.BAD_POLICY,
        "'protect_tokens'",
    ),
    "misspelt field of a strategy": (
        {"prune": {"strategy": "sliding_window", "max_turn": 5}},
        Code.BAD_POLICY,
        "did you mean 'max_turns'?",
    ),
    "unknown strategy": ({"prune": {"strategy": "sliding_windows"}}, Code.BAD_POLICY, "did you mean 'sliding_window'?"),
    "no strategy": ({"prune": {"max_turns": 5}}, Code.BAD_POLICY, ", ".join(sorted(known_strategies()))),
    "strategy not a name": ({"prune": {"strategy": ["x"]}}, Code.BAD_POLICY, "prune needs a strategy"),
    "strategy without its field": ({"prune": {"strategy": "sliding_window"}}, Code.BAD_POLICY, "max_turns"),
    "a negative window": ({"prune": {"strategy": "summarize", "max_turns": -1}}, Code.BAD_POLICY, "$.prune.max_turns"),
    "a budget of nothing": ({"budget": {"max_tokens": 0}}, Code.BAD_POLICY, "$.budget.max_tokens"),
    "a share above one": ({"budget": {"max_tokens": 9, "low_water": 1.5}}, Code.BAD_POLICY, "$.budget.low_water"),
    "an unknown choice": ({"turn": CANARY}, Code.BAD_POLICY, "$.turn"),
    "an unknown count": ({"count": "bytes"}, Code.BAD_POLICY, "$.count"),
    "a text for a number": ({"collapse": {"after_turns": CANARY}}, Code.BAD_POLICY, "$.collapse.after_turns"),
    "a text for a part": ({"keep": CANARY}, Code.BAD_POLICY, "$.keep"),
    "a field that quotes": ({CANARY: 1}, Code.BAD_POLICY, "(unprintable)"),
    "a strategy that quotes": ({"prune": {"strategy": CANARY}}, Code.BAD_POLICY, "(unprintable)"),
    "a priority that quotes": ({"composition": {"priority": [CANARY]}}, Code.BAD_POLICY, "$.composition.priority"),
    "a tool role that quotes": (
        {"prune": {"strategy": "steady", "tool_roles": {CANARY: {"argument": "path", "acess": "read"}}}},
        Code.BAD_POLICY,
        "did you mean 'access'?",
    ),
}


@pytest.mark.parametrize(("source", "code", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_a_wrong_policy_is_refused_with_what_to_write_instead(
    source: str | dict[str, Any], code: Code, says: str
) -> None:
    with pytest.raises(Refused) as refusal:
        load_policy(source)

    assert refusal.value.code is code
    assert says in refusal.value.detail
    assert CANARY not in f"{refusal.value}{refusal.value!r}{refusal.value.__cause__}"


def test_a_policy_nested_without_end_is_refused() -> None:
    source: dict[str, Any] = {}
    for _ in range(5_000):
        source = {"keep": source}

    with pytest.raises(Refused) as refusal:
        load_policy({"preset": "beskar", "keep": source})

    assert refusal.value.code is Code.BAD_POLICY


@pytest.mark.parametrize(
    "source",
    [
        {"preset": "beskar", "prune": {"strategy": "sliding_window", "max_turns": 1}},
        {"prune": {"strategy": "sliding_window", "max_turns": 1}},
        {"collapse": {"after_turns": 0, "into": "stub"}},
        {"compress": {"max_tool_result_tokens": 50}},
        {"prune": {"strategy": "token_budget", "max_tokens": 500}},
        {"composition": {"max_mutations": 1, "priority": ["compress"]}},
        {"prune": {"strategy": "steady", "tool_roles": {"read": {"argument": "path"}}}},
    ],
    ids=str,
)
def test_names_that_others_rely_on_load(source: dict[str, Any]) -> None:
    assert isinstance(load_policy(source), Policy)


@pytest.mark.parametrize("name", [*PRESETS, ""])
def test_a_policy_can_be_sent_to_another_process(name: str) -> None:
    policy = load_policy(name)

    assert msgspec.json.decode(encode(policy), type=Policy) == policy
    assert load_policy(msgspec.json.decode(encode(policy))) == policy


def test_the_schema_of_a_policy_shows_every_strategy() -> None:
    shown = str(json_schemas()["policy"])

    assert [name for name in known_strategies() if f"'{name}'" not in shown] == []

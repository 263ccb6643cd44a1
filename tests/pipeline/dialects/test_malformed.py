"""The malformed arrays that OpenHands sends to live providers, in every wire format that can express them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pytest

from contracts import Code, Refused
from pipeline.notices import INTERRUPTED
from tests.pipeline.dialects.checks import Item, plain, raws, repaired, rules, run

Items = list[Item]


@dataclass(frozen=True)
class Writer:
    """How a wire format writes a prompt, a word of the model, calls made at once, and their results."""

    ask: Callable[[str], Item]
    say: Callable[[str], Item]
    use: Callable[[Sequence[str]], Items]
    answer: Callable[[Sequence[str]], Items]


def _anthropic_use(call_id: str) -> Item:
    return {"type": "tool_use", "id": call_id, "name": "search", "input": {}}


def _chat_call(call_id: str) -> Item:
    return {"id": call_id, "type": "function", "function": {"name": "search", "arguments": "{}"}}


def _gemini_call(call_id: str) -> Item:
    return {"functionCall": {"id": call_id, "name": "search", "args": {}}}


def _gemini_response(call_id: str) -> Item:
    return {"functionResponse": {"id": call_id, "name": "search", "response": {"output": "found"}}}


WRITERS: Final = {
    "anthropic": Writer(
        ask=lambda text: {"role": "user", "content": text},
        say=lambda text: {"role": "assistant", "content": text},
        use=lambda ids: [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": i, "name": "search", "input": {}} for i in ids],
            }
        ],
        answer=lambda ids: [
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": i, "content": "found"} for i in ids]}
        ],
    ),
    "openai-chat": Writer(
        ask=lambda text: {"role": "user", "content": text},
        say=lambda text: {"role": "assistant", "content": text},
        use=lambda ids: [{"role": "assistant", "content": None, "tool_calls": [_chat_call(i) for i in ids]}],
        answer=lambda ids: [{"role": "tool", "tool_call_id": i, "content": "found"} for i in ids],
    ),
    "openai-responses": Writer(
        ask=lambda text: {"type": "message", "role": "user", "content": text},
        say=lambda text: {"type": "message", "role": "assistant", "content": text},
        use=lambda ids: [{"type": "function_call", "call_id": i, "name": "search", "arguments": "{}"} for i in ids],
        answer=lambda ids: [{"type": "function_call_output", "call_id": i, "output": "found"} for i in ids],
    ),
    "gemini": Writer(
        ask=lambda text: {"role": "user", "parts": [{"text": text}]},
        say=lambda text: {"role": "model", "parts": [{"text": text}]},
        use=lambda ids: [{"role": "model", "parts": [_gemini_call(i) for i in ids]}],
        answer=lambda ids: [{"role": "user", "parts": [_gemini_response(i) for i in ids]}],
    ),
}


def unmatched_use(w: Writer) -> Items:
    return [w.ask("go"), *w.use("a"), w.ask("and?")]


def unmatched_result(w: Writer) -> Items:
    return [w.ask("go"), w.say("fine"), *w.answer("a"), w.say("done"), w.ask("and?")]


def interleaved_user(w: Writer) -> Items:
    return [w.ask("go"), *w.use("a"), w.ask("wait"), *w.answer("a"), w.say("done"), w.ask("and?")]


def interleaved_assistant(w: Writer) -> Items:
    return [w.ask("go"), *w.use("a"), w.say("hm"), *w.answer("a"), w.say("done"), w.ask("and?")]


def duplicate_id(w: Writer) -> Items:
    return [w.ask("go"), *w.use("a"), *w.answer("a"), *w.use("a"), *w.answer("a"), w.ask("and?")]


def duplicate_result(w: Writer) -> Items:
    return [w.ask("go"), *w.use("a"), *w.answer("aa"), w.say("done"), w.ask("and?")]


def wrong_id(w: Writer) -> Items:
    return [w.ask("go"), *w.use("a"), *w.answer("b"), w.say("done"), w.ask("and?")]


def parallel_missing_one(w: Writer) -> Items:
    return [w.ask("go"), *w.use("ab"), *w.answer("a"), w.say("done"), w.ask("and?")]


def results_before_calls(w: Writer) -> Items:
    return [w.ask("go"), *w.answer("a"), *w.use("a"), w.ask("and?")]


CASES: Final = (
    unmatched_use,
    unmatched_result,
    interleaved_user,
    interleaved_assistant,
    duplicate_id,
    duplicate_result,
    wrong_id,
    parallel_missing_one,
    results_before_calls,
)
# A later turn may use an id again where results stand right behind their call; in Responses they stand anywhere behind
# it; neighbouring model messages are one for Anthropic and Gemini.
ACCEPTED: Final = {
    ("openai-chat", "duplicate_id"),
    ("openai-responses", "duplicate_id"),
    ("gemini", "duplicate_id"),
    ("openai-responses", "interleaved_user"),
    ("openai-responses", "interleaved_assistant"),
    ("anthropic", "interleaved_assistant"),
    ("gemini", "interleaved_assistant"),
}
ARRAYS: Final = {
    (format_name, case.__name__): case(writer) for format_name, writer in WRITERS.items() for case in CASES
}
MALFORMED: Final = {key: items for key, items in ARRAYS.items() if key not in ACCEPTED}


def arrays(of: dict[tuple[str, str], Items]) -> pytest.MarkDecorator:
    """Every array with its format."""
    cases = [pytest.param(key[0], items, id=" ".join(key)) for key, items in of.items()]
    return pytest.mark.parametrize(("format_name", "items"), cases)


@arrays(MALFORMED)
def test_it_breaks_a_rule(format_name: str, items: Items) -> None:
    assert rules(items, format_name) != []


@arrays(MALFORMED)
def test_repair_makes_it_valid_and_keeps_every_prompt(format_name: str, items: Items) -> None:
    published = repaired(items, format_name)
    writer = WRITERS[format_name]

    assert rules(published, format_name) == []
    assert writer.ask("go") in published
    assert str(published).count("and?") == 1


@arrays(MALFORMED)
def test_reject_refuses_it(format_name: str, items: Items) -> None:
    with pytest.raises(Refused) as refused:
        run(items, format_name, {"validate": {"input": "reject"}})

    assert refused.value.code == Code.INVALID_INPUT


@arrays(ARRAYS)
def test_trust_leaves_it_as_it_came(format_name: str, items: Items) -> None:
    result = run(items, format_name, {"validate": {"input": "trust"}})

    assert result.messages == raws(items)
    assert ("input_invalid" in result.reason) == (rules(items, format_name) != [])


@arrays({key: items for key, items in ARRAYS.items() if key in ACCEPTED})
def test_what_a_provider_accepts_is_left_alone(format_name: str, items: Items) -> None:
    assert rules(items, format_name) == []
    assert plain(run(items, format_name, {"validate": {"input": "reject"}})) == items


@pytest.mark.parametrize("format_name", WRITERS)
def test_only_what_is_missing_is_made_up(format_name: str) -> None:
    published = repaired(ARRAYS[format_name, "parallel_missing_one"], format_name)

    assert str(published).count(INTERRUPTED) == 1
    assert str(published).count("found") == 1


@pytest.mark.parametrize("format_name", WRITERS)
def test_the_first_of_two_results_wins(format_name: str) -> None:
    published = repaired(ARRAYS[format_name, "duplicate_result"], format_name)

    assert str(published).count("found") == 1
    assert INTERRUPTED not in str(published)


def test_an_opencode_part_is_call_and_result_at_once_so_none_of_these_can_be_written() -> None:
    part = {
        "type": "tool",
        "callID": "a",
        "tool": "search",
        "state": {"status": "completed", "input": {}, "output": "x"},
    }
    message = {"info": {"role": "assistant"}, "parts": [part, part]}

    assert rules([message, message], "opencode") == []

"""Gemini: contents and parts, responses counted against calls, signatures on their parts."""

from typing import Any

import pytest
from msgspec import Raw

from pipeline.notices import CLEARED, INTERRUPTED, RESUMED
from tests.pipeline.dialects.checks import Item, parts, plain, read, relettered, repaired, rewritten, rules, run

NAME = "gemini"


def user(*texts: str) -> Item:
    return {"role": "user", "parts": [{"text": text} for text in texts]}


def model(text: str) -> Item:
    return {"role": "model", "parts": [{"text": text}]}


def call(name: str, call_id: str = "", signature: str = "") -> Item:
    made = {"functionCall": {"name": name, "args": {}, **({"id": call_id} if call_id else {})}}
    return {**made, **({"thoughtSignature": signature} if signature else {})}


def response(name: str, call_id: str = "", content: Any = None) -> Item:
    given = {"name": name, "response": {"output": "found"} if content is None else content}
    return {"functionResponse": {**given, **({"id": call_id} if call_id else {})}}


def calls(*made: Item) -> Item:
    return {"role": "model", "parts": list(made)}


def responses(*given: Item, role: str = "user") -> Item:
    return {"role": role, "parts": list(given)}


ASK, MORE = user("go"), user("and then?")
CALL_A, RESPONSE_A = calls(call("a", "1")), responses(response("a", "1"))
MEDIA = {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]}

VALID = {
    "one round": [ASK, CALL_A, RESPONSE_A],
    "without ids": [ASK, calls(call("a")), responses(response("a"))],
    "without ids, one tool twice": [ASK, calls(call("a"), call("a")), responses(response("a"), response("a"))],
    "parallel calls": [ASK, calls(call("a", "1"), call("b", "2")), responses(response("b", "2"), response("a", "1"))],
    "sequential calls": [ASK, CALL_A, RESPONSE_A, calls(call("b")), responses(response("b"))],
    "a waiting call": [ASK, CALL_A],
    "one of two waiting": [ASK, calls(call("a", "1"), call("b", "2")), RESPONSE_A],
    "media behind the response": [ASK, CALL_A, RESPONSE_A, MEDIA],
    "the function role": [ASK, CALL_A, responses(response("a", "1"), role="function")],
    "no role": [{"parts": [{"text": "go"}]}],
    "users in a row": [ASK, MORE],
    "text with the call": [
        ASK,
        {"role": "model", "parts": [{"text": "let me see"}, call("a")]},
        responses(response("a")),
    ],
    "signed steps": [ASK, calls(call("a", "", "s1")), responses(response("a")), calls(call("b", "", "s2"))],
    "only the first of a parallel set is signed": [ASK, calls(call("a", "", "s1"), call("b"))],
    "an earlier turn is unsigned": [ASK, CALL_A, RESPONSE_A, MORE, calls(call("b", "", "s2"))],
    "the provider's own tool": [ASK, {"role": "model", "parts": [{"toolCall": {}}, {"toolResponse": {}}]}, MORE],
    "snake case": [
        ASK,
        {"role": "model", "parts": [{"function_call": {"name": "a", "args": {}}, "thought_signature": "s"}]},
        {"role": "user", "parts": [{"function_response": {"name": "a", "response": {}}}]},
    ],
    "reused id": [ASK, CALL_A, RESPONSE_A, calls(call("b", "1")), responses(response("b", "1"))],
    "empty": [],
}

BROKEN = {
    "first_role": [model("hello"), ASK],
    "last_role": [ASK, model("done")],
    "bad_role": [ASK, {"role": "assistant", "parts": [{"text": "hm"}]}, MORE],
    "unanswered_call": [ASK, CALL_A, MORE],
    "unmatched_result": [ASK, RESPONSE_A, MORE],
    "duplicate_result": [ASK, CALL_A, responses(response("a", "1"), response("a", "1")), MORE],
    "response_count": [ASK, calls(call("a", "1"), call("b", "2")), RESPONSE_A, responses(response("b", "2"))],
    "call_after_model": [ASK, model("let me see"), CALL_A, RESPONSE_A],
    "missing_signature": [ASK, calls(call("a", "", "s1")), responses(response("a")), calls(call("b"))],
}
NOT_MENDED = ("last_role", "bad_role", "missing_signature")

MALFORMED = {
    "unmatched use": [ASK, CALL_A, MORE],
    "unmatched result": [ASK, RESPONSE_A, MORE],
    "interleaved user": [ASK, CALL_A, MORE, RESPONSE_A],
    "interleaved assistant": [ASK, CALL_A, model("hm"), RESPONSE_A],
    "duplicate id": [ASK, CALL_A, RESPONSE_A, RESPONSE_A, MORE],
    "wrong id": [ASK, CALL_A, responses(response("a", "2")), MORE],
    "parallel missing one": [ASK, calls(call("a", "1"), call("b", "2")), RESPONSE_A, MORE],
    "results before calls": [ASK, RESPONSE_A, CALL_A, MORE],
}


@pytest.mark.parametrize("items", VALID.values(), ids=VALID)
def test_an_array_that_the_provider_accepts_breaks_no_rule(items: list[Item]) -> None:
    assert rules(items, NAME) == []


@pytest.mark.parametrize("items", VALID.values(), ids=VALID)
def test_an_array_that_the_provider_accepts_leaves_as_it_came(items: list[Item]) -> None:
    assert run(items, NAME).edits == []


@pytest.mark.parametrize(("rule", "items"), BROKEN.items(), ids=BROKEN)
def test_a_broken_array_is_named_by_its_rule(rule: str, items: list[Item]) -> None:
    assert rules(items, NAME) == [rule]


@pytest.mark.parametrize(
    "items",
    [*(items for rule, items in BROKEN.items() if rule not in NOT_MENDED), *MALFORMED.values()],
    ids=[*(rule for rule in BROKEN if rule not in NOT_MENDED), *MALFORMED],
)
def test_repair_leaves_no_broken_rule(items: list[Item]) -> None:
    assert rules(repaired(items, NAME), NAME) == []


@pytest.mark.parametrize("rule", NOT_MENDED)
def test_what_cannot_be_mended_leaves_as_it_came(rule: str) -> None:
    assert repaired(BROKEN[rule], NAME) == BROKEN[rule]


def test_a_finished_conversation_may_be_pruned() -> None:
    items = [ASK, model("done"), MORE, CALL_A, RESPONSE_A, model("there")]

    result = run(items, NAME, {"prune": {"strategy": "sliding_window", "max_turns": 1}})

    assert (result.status, plain(result)) == ("pruned", [ASK, model("there")])


def test_model_contents_are_joined_up_to_the_calls() -> None:
    items = [ASK, model("one"), calls(call("a", "1", "s1")), calls(call("b", "2")), model("two"), MORE]
    answers = responses(response("a", "1"), response("b", "2"))
    joined = {"role": "model", "parts": [{"text": "one"}, call("a", "1", "s1"), call("b", "2")]}

    assert repaired([*items[:4], answers], NAME) == [ASK, joined, answers]


def test_spread_responses_become_one_content() -> None:
    items = [ASK, calls(call("a", "1"), call("b", "2"), call("c", "3")), RESPONSE_A, responses(response("b", "2"))]
    last = {"role": "user", "parts": [response("c", "3"), {"text": "thanks"}]}
    joined = [response("a", "1"), response("b", "2"), response("c", "3"), {"text": "thanks"}]

    assert repaired([*items, last], NAME) == [*items[:2], {"role": "user", "parts": joined}]


def test_calls_that_wait_are_not_joined_with_what_stands_before() -> None:
    items = [ASK, model("let me see"), CALL_A]

    assert repaired(items, NAME) == items


def test_an_interrupted_call_is_answered_behind_the_answers_that_are_there() -> None:
    items = [ASK, calls(call("a"), call("a")), responses(response("a")), MORE]
    stub = {"functionResponse": {"name": "a", "response": {"error": INTERRUPTED}}}

    assert repaired(items, NAME) == [*items[:2], responses(response("a"), stub), MORE]


def test_an_interrupted_call_is_answered_in_its_own_spelling_with_its_id() -> None:
    asked = {"role": "model", "parts": [{"function_call": {"id": "7", "name": "a"}}]}
    stub = {"function_response": {"id": "7", "name": "a", "response": {"error": INTERRUPTED}}}

    assert repaired([ASK, asked, MORE], NAME) == [ASK, asked, {"role": "user", "parts": [stub]}, MORE]


@pytest.mark.parametrize("behind", [[], [CALL_A]], ids=["the end", "a waiting call"])
def test_a_lost_response_leaves_a_word_where_the_model_would_speak_twice_or_last(behind: list[Item]) -> None:
    items = [ASK, model("hm"), responses(response("b", "9")), responses(response("b", "8")), *behind]

    assert repaired(items, NAME) == [ASK, model("hm"), user(RESUMED), *behind]


@pytest.mark.parametrize("into", ["assistant", "user"])
def test_a_collapsed_round_stands_in_front_of_a_call(into: str) -> None:
    long = responses(response("a", "1", {"output": "x" * 900}))
    items = [ASK, CALL_A, long, calls(call("b", "2")), responses(response("b", "2"))]

    result = run(items, NAME, {"collapse": {"after_turns": 0, "into": into}})

    assert (result.status, [item["role"] for item in plain(result)]) == ("pruned", ["user", "user", "model", "user"])
    assert rules(plain(result), NAME) == []


def test_a_cut_keeps_the_first_prompt_in_front() -> None:
    items = [ASK, CALL_A, RESPONSE_A, calls(call("b", "2")), responses(response("b", "2"))]

    assert plain(run(items, NAME, {"prune": {"strategy": "sliding_window", "max_turns": 1}})) == [ASK, *items[3:]]


def test_signatures_stay_on_their_parts() -> None:
    signed = {"role": "model", "parts": [{"text": "plan", "thought": True}, call("a", "1", "s1"), call("b", "2", "s2")]}
    answers = responses(response("a", "1", {"output": "x" * 900}), response("b", "2", {"output": "y" * 900}))
    items = [ASK, signed, answers, model("done"), MORE]

    published = plain(run(items, NAME, {"collapse": {"after_turns": 0, "into": "stub"}}))

    assert published[1] == signed
    assert published[2] == responses(*(response(n, i, {"output": CLEARED}) for n, i in (("a", "1"), ("b", "2"))))


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"text": "hello"}, "text"),
        ({"text": "hello", "thoughtSignature": "s"}, "text"),
        ({"text": "plan", "thought": True}, "reasoning"),
        ({"functionCall": {"name": "a"}}, "call"),
        ({"function_call": {"name": "a", "args": {}}}, "call"),
        ({"functionResponse": {"name": "a", "response": {}}}, "result"),
        ({"function_response": {"name": "a", "response": None}}, "result"),
        ({"inlineData": {}}, "media"),
        ({"inline_data": {}}, "media"),
        ({"fileData": {}}, "media"),
        ({"file_data": {}}, "media"),
        ({"executableCode": {"code": "1"}}, "opaque"),
        ({"codeExecutionResult": {}}, "opaque"),
        ({"toolCall": {}, "thoughtSignature": "s"}, "opaque"),
        ({"text": None}, "opaque"),
        ({"functionCall": None}, "opaque"),
        ({}, "opaque"),
        (None, "opaque"),
    ],
    ids=str,
)
def test_every_part_is_read_as_its_kind(part: Any, kind: str) -> None:
    assert [found.kind for found in parts({"role": "user", "parts": [part]}, NAME)] == [kind]


@pytest.mark.parametrize("content", [None, [], "text", {}], ids=str)
def test_a_content_without_parts_stays(content: Any) -> None:
    items = [ASK, {"role": "user", "parts": content}, {"role": "user"}, {"role": ["odd"], "parts": []}, MORE]

    assert plain(run(items, NAME)) == items


def test_the_string_leaves_of_a_response_are_its_texts() -> None:
    content = {"a": "x", "b": [{"c": "y", "n": 1.5, "t": True}, "z", None], "d": "12.5", "e": ""}
    item = responses(response("a", "1", content))

    assert [text for _, text in parts(item, NAME)[0].slots] == ["x", "y", "z", ""]
    assert relettered(item, NAME)["parts"][0]["functionResponse"]["response"] == {
        "a": "parts.0.functionResponse.response.a",
        "b": [
            {"c": "parts.0.functionResponse.response.b.0.c", "n": 1.5, "t": True},
            "parts.0.functionResponse.response.b.1",
            None,
        ],
        "d": "12.5",
        "e": "parts.0.functionResponse.response.e",
    }


def test_the_leaves_of_a_response_are_bounded() -> None:
    deep: Any = "end"
    for _ in range(30):
        deep = [deep]
    wide = [f"text {i}" for i in range(5_000)]
    (part,) = parts(responses(response("a", "1", {"deep": deep, "wide": wide})), NAME)

    assert len(part.slots) == 256
    assert part.size > 40_000


def test_a_result_becomes_one_output_and_loses_its_media() -> None:
    given = {"name": "a", "id": "1", "response": {"rows": []}, "parts": [{"inlineData": {}}], "scheduling": "SILENT"}
    item = responses({"functionResponse": given, "x": 1})

    assert parts(item, NAME)[0].size >= 6_400
    assert rewritten(item, NAME, "new") == responses(
        {
            "functionResponse": {"name": "a", "id": "1", "response": {"output": "new"}, "scheduling": "SILENT"},
            "x": 1,
        }
    )


def test_an_empty_response_can_be_rewritten_too() -> None:
    assert rewritten(responses(response("a", "1", {})), NAME, "new") == responses(response("a", "1", {"output": "new"}))


def test_an_untouched_content_keeps_its_bytes() -> None:
    odd = Raw(b'{ "parts" : [ {"text":"go", "n": 1.50} ], "role":"user", "z":[ 1 ] }')

    assert (run([odd, CALL_A, RESPONSE_A], NAME).messages or [])[0] == odd


def test_a_call_and_its_response_are_one_unit() -> None:
    items = [ASK, calls(call("a")), calls(call("b")), responses(response("a"), response("b")), MORE]

    assert [unit.size for unit in read(items, NAME).units] == [1, 3, 1]


def test_model_contents_that_a_cut_brought_together_become_one() -> None:
    answer = model("x" * 5_000)
    items = [ASK, answer, user("hm"), CALL_A, RESPONSE_A, model("done"), MORE]

    pruned = run(items, NAME, {"prune": {"strategy": "importance", "max_turns": 6}})

    assert pruned.status == "pruned"
    joined = {"role": "model", "parts": [*answer["parts"], *CALL_A["parts"]]}
    assert plain(pruned) == [ASK, joined, RESPONSE_A, model("done"), MORE]

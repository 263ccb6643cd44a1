"""OpenAI Responses: items, pairs by type, reasoning, ids."""

from typing import Any

import msgspec
import pytest

from contracts import raw
from pipeline.notices import INTERRUPTED
from tests.pipeline.dialects.checks import Item, parts, plain, raws, read, relettered, repaired, rewritten, rules, run

NAME = "openai-responses"


def user(text: str) -> Item:
    return {"role": "user", "content": text}


def said(text: str, **fields: Any) -> Item:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **fields}


def call(call_id: Any, name: str = "search", **fields: Any) -> Item:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **fields}


def output(call_id: Any, content: Any = "found", **fields: Any) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": content, **fields}


def custom(call_id: str) -> Item:
    return {"type": "custom_tool_call", "call_id": call_id, "name": "patch", "input": "*** Begin"}


def custom_output(call_id: str) -> Item:
    return {"type": "custom_tool_call_output", "call_id": call_id, "output": "Done"}


def reasoning(rs_id: str | None = "rs_1", **fields: Any) -> Item:
    return {
        "type": "reasoning",
        "summary": [],
        "encrypted_content": "gAAAA",
        **({"id": rs_id} if rs_id else {}),
        **fields,
    }


def pair(kind: str, asked: str, answer: str, **fields: Any) -> list[Item]:
    return [{"type": kind, "call_id": "c", asked: {}}, {"type": answer, "call_id": "c", **fields}]


ASK, DONE = user("go"), said("done")
SCREENSHOT = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}

VALID = {
    "one round": [ASK, call("a"), output("a"), DONE],
    "parallel calls, outputs in another order": [ASK, call("a"), call("b"), output("b"), output("a")],
    "an output far behind its call": [ASK, call("a"), said("meanwhile"), user("and?"), output("a"), DONE],
    "reasoning before a call": [ASK, reasoning(), call("a"), output("a"), reasoning("rs_2"), DONE],
    "reasoning in a row": [ASK, reasoning(), reasoning("rs_2"), DONE],
    "reasoning behind its call": [ASK, call("a"), reasoning(), output("a"), DONE],
    "a trailing call waits": [ASK, reasoning(), call("a")],
    "one of two trailing calls waits": [ASK, call("a"), call("b"), output("a")],
    "custom tool": [ASK, custom("a"), custom_output("a")],
    "local shell": [ASK, *pair("local_shell_call", "action", "local_shell_call_output", output="{}")],
    "local shell answered as a function": [
        ASK,
        *pair("local_shell_call", "action", "function_call_output", output="x"),
    ],
    "shell": [ASK, *pair("shell_call", "action", "shell_call_output", output=[{"stdout": "a", "stderr": ""}])],
    "computer": [ASK, *pair("computer_call", "action", "computer_call_output", output=SCREENSHOT)],
    "tool search": [ASK, *pair("tool_search_call", "arguments", "tool_search_output", tools=[])],
    "tool search of the provider without output": [
        ASK,
        {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}},
        DONE,
    ],
    "approval": [
        ASK,
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "x", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        DONE,
    ],
    "call and result at once": [ASK, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, DONE],
    "null output": [ASK, call("a"), output("a", None), DONE],
    "developer in the middle": [ASK, DONE, {"role": "developer", "content": "be brief"}, user("more")],
    "does not start with a user": [call("a"), output("a"), DONE],
    "right id prefixes": [ASK, reasoning("rs_1"), call("a", id="fc_1"), output("a", id="fco_1"), said("x", id="msg_1")],
    "no ids": [ASK, reasoning(None), call("a", id=None), output("a", id=None), DONE],
    "reused call id": [ASK, call("a"), output("a"), call("a", "read"), output("a"), DONE],
    "empty": [],
}

BROKEN = {
    "unanswered_call": [ASK, call("a"), user("well?")],
    "unmatched_result": [ASK, output("a"), DONE],
    "duplicate_result": [ASK, call("a"), output("a"), output("a"), DONE],
    "output_type": [ASK, custom("a"), output("a"), DONE],
    "reasoning_without_item": [ASK, reasoning(), user("stop"), DONE],
    "bad_id_prefix": [ASK, call("a", id="call_1"), output("a"), DONE],
}

MALFORMED = {
    "unmatched use": [ASK, call("a"), user("next")],
    "unmatched result": [ASK, output("a"), user("next")],
    "interleaved user": [ASK, call("a"), user("next"), output("a"), DONE],
    "interleaved assistant": [ASK, call("a"), said("hm"), output("a"), DONE],
    "duplicate id": [ASK, call("a"), output("a"), output("a"), DONE],
    "wrong id": [ASK, call("a"), output("b"), DONE],
    "parallel missing one": [ASK, call("a"), call("b"), output("a"), DONE],
    "results before calls": [ASK, output("a"), call("a"), DONE],
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


@pytest.mark.parametrize("items", [*BROKEN.values(), *MALFORMED.values()], ids=[*BROKEN, *MALFORMED])
def test_repair_leaves_no_broken_rule(items: list[Item]) -> None:
    assert rules(repaired(items, NAME), NAME) == []


def test_the_last_reasoning_must_lead_somewhere() -> None:
    assert rules([ASK, DONE, reasoning()], NAME) == ["reasoning_without_item"]
    assert repaired([ASK, DONE, reasoning()], NAME) == [ASK, DONE]


def test_an_interrupted_call_is_answered_behind_the_calls_made_with_it() -> None:
    published = repaired([ASK, reasoning(), call("a"), call("b"), output("b"), user("next")], NAME)

    assert published == [ASK, reasoning(), call("a"), call("b"), output("a", INTERRUPTED), output("b"), user("next")]


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (custom("c"), {"type": "custom_tool_call_output", "call_id": "c", "output": INTERRUPTED}),
        (
            {"type": "local_shell_call", "call_id": "c", "action": {}},
            {"type": "local_shell_call_output", "call_id": "c", "output": INTERRUPTED},
        ),
        (
            {"type": "shell_call", "call_id": "c", "action": {}},
            {
                "type": "shell_call_output",
                "call_id": "c",
                "output": [{"stdout": "", "stderr": INTERRUPTED, "outcome": {"type": "timeout"}}],
            },
        ),
        (
            {"type": "apply_patch_call", "call_id": "c", "operation": {}},
            {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": INTERRUPTED},
        ),
        (
            {"type": "tool_search_call", "call_id": "c", "arguments": {}},
            {
                "type": "tool_search_output",
                "call_id": "c",
                "execution": "client",
                "status": "completed",
                "tools": [],
            },
        ),
        (
            {"type": "mcp_approval_request", "id": "mcpr_1", "name": "x", "arguments": "{}"},
            {
                "type": "mcp_approval_response",
                "approval_request_id": "mcpr_1",
                "approve": False,
                "reason": INTERRUPTED,
            },
        ),
    ],
    ids=lambda item: item["type"],
)
def test_each_kind_of_call_is_answered_by_its_own_output(asked: Item, answered: Item) -> None:
    assert repaired([ASK, asked, user("next")], NAME) == [ASK, asked, answered, user("next")]


def test_a_screenshot_is_never_made_up() -> None:
    items = [ASK, {"type": "computer_call", "call_id": "c", "action": {}}, user("next")]

    assert repaired(items, NAME) == items


def test_a_wrong_item_id_is_taken_away_and_the_rest_stays() -> None:
    items = [ASK, call("a", id="chatcmpl-tool-1", status="completed"), output("a"), said("x", id="cht_1")]

    assert repaired(items, NAME) == [ASK, call("a", status="completed"), output("a"), said("x")]


def test_reasoning_is_never_altered_not_even_its_id() -> None:
    items = [ASK, reasoning("0441"), DONE]

    assert rules(items, NAME) == ["bad_id_prefix"]
    assert repaired(items, NAME) == items


def test_an_output_gets_the_type_of_its_call() -> None:
    assert repaired([ASK, custom("a"), output("a", "Done"), DONE], NAME) == [ASK, custom("a"), custom_output("a"), DONE]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([ASK, reasoning(), call("a"), call("b"), output("a"), output("b"), DONE], [1, 5, 1]),
        ([ASK, reasoning(), call("a"), output("a"), call("b"), output("b")], [1, 3, 2]),
        ([ASK, reasoning(), said("so"), call("a"), output("a"), DONE], [1, 4, 1]),
        ([ASK, reasoning(), {"type": "web_search_call"}, DONE, reasoning(), DONE], [1, 3, 2]),
        ([ASK, reasoning(), reasoning(), DONE, user("more")], [1, 3, 1]),
        ([ASK, said("so"), call("a"), output("a")], [1, 1, 2]),
    ],
    ids=["parallel calls", "two steps", "text before the call", "provider's tool", "two thoughts", "no reasoning"],
)
def test_reasoning_stays_with_what_it_led_to(items: list[Item], expected: list[int]) -> None:
    assert [unit.size for unit in read(items, NAME).units] == expected


def test_a_window_never_parts_reasoning_from_its_items() -> None:
    items = [ASK, reasoning(), said("so"), call("a"), output("a")]

    assert plain(run(items, NAME, {"prune": {"strategy": "sliding_window", "max_turns": 1}})) == items[1:]


def test_waiting_calls_leave_as_they_came() -> None:
    items = [ASK, DONE, user("again"), reasoning(), call("a", id="fc_1"), call("b", id="fc_2")]

    published = plain(run(items, NAME, {"prune": {"strategy": "sliding_window", "max_turns": 1}}))

    assert published == items[3:]


def test_an_item_before_a_compaction_goes_and_the_compaction_stays() -> None:
    compaction = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"}
    items = [ASK, DONE, compaction, user("again"), DONE, user("last")]

    published = plain(run(items, NAME, {"prune": {"strategy": "sliding_window", "max_turns": 1}}))

    assert "compaction" in read([compaction], NAME).messages[0].view.marks
    assert published == [compaction, user("last")]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "fc_1"},
        {"type": "additional_tools", "role": "developer", "tools": []},
        {"type": "from_the_future", "call_id": "a"},
        {"type": ["list"], "role": {"an": "object"}},
        {"role": "user"},
        {"role": "user", "content": None},
        {"role": "user", "content": [None, 7, {"type": {}}, {"type": "input_text", "text": 7}]},
        "text",
        None,
    ],
    ids=lambda item: str(item)[:40],
)
def test_an_item_unknown_to_us_is_opaque_and_stays(item: Item) -> None:
    items = [ASK, item, DONE, user("last")]
    kinds = {part.kind for part in parts(item, NAME)}

    assert kinds == {"opaque"}
    assert raws([item])[0] in (run(items, NAME).messages or [])


def test_an_untouched_item_keeps_its_bytes() -> None:
    odd = raw(
        msgspec.Raw(b'{ "type":"function_call_output", "call_id":"a", "output":"x", "n": 1.50, "z": {"y":[ 1 ]} }')
    )

    assert (run([ASK, call("a"), odd, DONE], NAME).messages or [])[2] == odd


@pytest.mark.parametrize(
    ("content", "text", "is_media"),
    [
        ("found", "found", False),
        ("", "", False),
        (None, "", False),
        ({"rows": 3}, "", False),
        ([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}], "a\nb", False),
        ([{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}], "", True),
    ],
    ids=["string", "empty", "null", "object", "texts", "image"],
)
def test_an_output_is_read_in_every_shape(content: Any, text: str, is_media: bool) -> None:
    (part,) = parts(output("a", content), NAME)

    assert (part.kind, part.text, part.size >= 6_400) == ("result", text, is_media)


def test_a_result_takes_another_text_and_keeps_its_link() -> None:
    assert rewritten(output("a", [{"type": "input_text", "text": "b"}], id="fc_1"), NAME, "new") == output(
        "a", "new", id="fc_1"
    )


@pytest.mark.parametrize(
    "item",
    [
        {"type": "computer_call_output", "call_id": "c", "output": SCREENSHOT},
        {"type": "tool_search_output", "call_id": "c", "tools": [{"name": "x" * 900}]},
        {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True, "reason": "x" * 900},
        {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "x" * 900, "stderr": ""}]},
    ],
    ids=lambda item: item["type"],
)
def test_a_result_that_is_no_text_is_not_replaced_by_one(item: Item) -> None:
    assert rewritten(item, NAME, "new") == item


def test_the_texts_of_an_output_list_are_rewritten_in_place() -> None:
    item = output("a", [{"type": "input_text", "text": "a", "x": 1}, {"type": "input_image", "image_url": "u"}])

    assert relettered(item, NAME) == output(
        "a", [{"type": "input_text", "text": "output.0.text", "x": 1}, {"type": "input_image", "image_url": "u"}]
    )


def test_encrypted_reasoning_is_counted_and_its_summary_read() -> None:
    (part,) = parts(reasoning(summary=[{"type": "summary_text", "text": "plan"}]), NAME)

    assert (part.kind, part.text, part.size, part.state) == ("reasoning", "plan", 5, "")


def test_behind_a_response_id_nothing_is_touched() -> None:
    from contracts import Snapshot, load_policy
    from pipeline import prune

    snapshot = Snapshot("c", raws([output("a")]), format="openai-responses", previous_response_id="resp_1")

    assert prune(snapshot, load_policy({})).edits == []

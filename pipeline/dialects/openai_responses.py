"""OpenAI Responses: every call, result and piece of reasoning is an item; outputs stand anywhere behind calls."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from pipeline.dialects.dialect import Dialect, Violation
from pipeline.dialects.pairing import ends_anywhere, pair_violations, places_behind
from pipeline.media import by_tiles, image_chars
from pipeline.notices import INTERRUPTED
from pipeline.splice import DELETE, Change
from pipeline.units import Call, Pairs
from pipeline.view import REASONING, Message, Part, Path, Role, Slot, View

NAME: Final = "openai-responses"
_ROLES: Final[dict[str, Role]] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
# What each call asks, by the field that says it; the link is `call_id` but for approvals.
_CALLS: Final = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
    "computer_call": "action",
    "tool_search_call": "arguments",
    "mcp_approval_request": "arguments",
}
_ANSWERS: Final = {
    "function_call_output": "function_call",
    "custom_tool_call_output": "custom_tool_call",
    "local_shell_call_output": "local_shell_call",
    "shell_call_output": "shell_call",
    "apply_patch_call_output": "apply_patch_call",
    "computer_call_output": "computer_call",
    "tool_search_output": "tool_search_call",
    "mcp_approval_response": "mcp_approval_request",
}
# Call and result at once: the provider ran them itself.
_SERVER_ITEMS: Final = frozenset(
    {
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
    }
)
_COMPACTIONS: Final = frozenset({"compaction", "compaction_summary"})
_OWN_TYPES: Final = frozenset({*_CALLS, *_ANSWERS, *_SERVER_ITEMS, *_COMPACTIONS, "reasoning", "item_reference"})
_TEXTS: Final = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
_MEDIA: Final = frozenset({"input_image", "input_file", "input_audio", "computer_screenshot"})
_OWN_BLOCKS: Final = frozenset({"input_text", "output_text", "input_image", "input_file"})
# Items that may come without an id; one with an id that begins otherwise is refused.
_PREFIXES: Final = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fc",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctc",
}
_HEARD_AS_FUNCTIONS: Final = ("local_shell_call", "tool_search_call")  # runners answer these as functions, and may
_TEXT_CALLS: Final = frozenset({"function_call", "custom_tool_call"})

_BAD_ID: Final = "bad_id"
_FIXED: Final = "fixed"  # a result that no text can stand for

_size = msgspec.json.Encoder().encode


def recognise(item: Any) -> int:
    """Sure by its item or block types; a plain message could be ours."""
    if not isinstance(item, dict):
        return 0
    kind, role = item.get("type"), _string(item.get("role"))
    if kind not in (None, "message"):
        return 2 if _string(kind) in _OWN_TYPES else 0
    if role not in _ROLES or "tool_calls" in item or "parts" in item:
        return 0
    content = item.get("content")
    if isinstance(content, list) and content:
        return (
            2 if any(isinstance(block, dict) and _string(block.get("type")) in _OWN_BLOCKS for block in content) else 0
        )
    if not isinstance(content, str | list):
        return 0
    return 2 if kind and _ROLES[role] == "system" else 1


def read(item: Any) -> View:
    """The neutral view of one item."""
    if not isinstance(item, dict):
        return _opaque("other", item)
    kind = item.get("type")
    if not isinstance(kind, str) or kind == "message":
        return _read_message(item)
    if kind in _CALLS:
        return View("assistant", (_read_call(item, kind),), _marks(kind, _has_bad_id(item, kind)))
    if kind in _ANSWERS:
        return View("tool", (_read_result(item, kind),), _marks(_ANSWERS[kind], _has_bad_id(item, kind)))
    if kind == "reasoning":
        return View("assistant", (_read_reasoning(item),), _marks("", _has_bad_id(item, kind)))
    if kind in _SERVER_ITEMS:
        return _opaque("assistant", item)
    return _opaque("other", item, "compaction" if kind in _COMPACTIONS else "")


def _opaque(role: Role, item: Any, mark: str = "") -> View:
    return View(role, (Part("opaque", (), size=len(_size(item))),), _marks(mark, False))


@cache
def _marks(mark: str, has_bad_id: bool) -> frozenset[str]:
    return frozenset({mark, _BAD_ID if has_bad_id else ""} - {""})


def _has_bad_id(item: dict[str, Any], kind: str) -> bool:
    item_id = item.get("id")
    if not isinstance(item_id, str):
        return False
    prefix = _PREFIXES.get(kind)
    return prefix is not None and not item_id.startswith(prefix)


def _read_message(item: dict[str, Any]) -> View:
    content = item.get("content")
    role = _ROLES.get(_string(item.get("role")), "other")
    marks = _marks("", _has_bad_id(item, "message"))
    if isinstance(content, str):
        return View(role, (Part("text", ("content",), ((("content",), content),)),), marks)
    if not isinstance(content, list):
        return View(role, (Part("opaque", (), size=len(_size(item))),), marks)
    return View(role, tuple([_read_block(block, ("content", i)) for i, block in enumerate(content)]), marks)


def _read_block(block: Any, path: Path) -> Part:
    if not isinstance(block, dict):
        return Part("opaque", path, size=len(_size(block)))
    kind = _string(block.get("type"))
    key = _TEXTS.get(kind, "")
    if isinstance(block.get(key), str):
        return Part("text", path, (((*path, key), block[key]),))
    if kind in _MEDIA:
        return Part("media", path, size=image_chars(block.get("image_url"), by_tiles))
    return Part("opaque", path, size=len(_size(block)))


def _read_call(item: dict[str, Any], kind: str) -> Part:
    key = _CALLS[kind]
    asked = item.get(key)
    text = asked if isinstance(asked, str) else "" if asked is None else _size(asked).decode()
    name = _string(item.get("name")) or kind.removesuffix("_call")
    call_id = item.get("id" if kind == "mcp_approval_request" else "call_id")
    # What the provider runs itself it also answers, and not always in the array.
    state = "server" if item.get("execution") == "server" else kind
    return Part("call", (), (((key,), text),), _string(call_id), name, state)


def _read_result(item: dict[str, Any], kind: str) -> Part:
    if kind == "mcp_approval_response":
        return Part("result", (), id=_string(item.get("approval_request_id")), state=_FIXED, size=len(_size(item)))
    call_id = _string(item.get("call_id")) or _string(item.get("id") if kind == "local_shell_call_output" else "")
    if kind == "tool_search_output":
        return Part("result", (), id=call_id, state=_FIXED, size=len(_size(item.get("tools"))))
    output = item.get("output")
    slots, size = _read_output(output)
    is_fixed = kind in ("computer_call_output", "shell_call_output")
    return Part("result", (), slots, call_id, state=_FIXED if is_fixed else "", size=size)


def _read_output(output: Any) -> tuple[tuple[Slot, ...], int]:
    """The texts of an output, and how much of it is none."""
    if isinstance(output, str):
        return ((("output",), output),), 0
    if isinstance(output, dict) and _string(output.get("type")) in _MEDIA:
        return (), image_chars(output.get("image_url"), by_tiles)
    if not isinstance(output, list):
        return (), 0 if output is None else len(_size(output))
    slots: list[Slot] = []
    size = 0
    for i, block in enumerate(output):
        part = _read_block(block, ("output", i))
        streams = _read_streams(block, ("output", i))
        slots.extend(part.slots or streams)
        size += 0 if streams else part.size
    return tuple(slots), size


def _read_streams(block: Any, path: Path) -> list[Slot]:
    """What a shell command printed."""
    if not isinstance(block, dict) or "type" in block:
        return []
    return [((*path, key), block[key]) for key in ("stdout", "stderr") if isinstance(block.get(key), str)]


def _read_reasoning(item: dict[str, Any]) -> Part:
    slots: list[Slot] = []
    for key in ("summary", "content"):
        blocks = item.get(key)
        for i, block in enumerate(blocks if isinstance(blocks, list) else ()):
            if isinstance(block, dict) and isinstance(block.get("text"), str):
                slots.append(((key, i, "text"), block["text"]))
    return Part("reasoning", (), tuple(slots), size=len(_string(item.get("encrypted_content"))))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def violations(messages: Sequence[Message], pairs: Pairs) -> list[Violation]:
    """Every rule of the Responses API that can be checked without the provider's own store."""
    found = pair_violations(NAME, messages, pairs, ends_anywhere(messages))
    found += [Violation(f"{NAME}.output_type", call.result_index) for call in _wrong_outputs(messages, pairs)]
    found += [Violation(f"{NAME}.reasoning_without_item", index) for index in _loose_reasoning(messages)]
    found += [Violation(f"{NAME}.bad_id_prefix", i) for i, m in enumerate(messages) if _BAD_ID in m.view.marks]
    return found


def _wrong_outputs(messages: Sequence[Message], pairs: Pairs) -> Iterator[Call]:
    """Calls answered by an output of another type than theirs."""
    if {mark for message in messages for mark in message.view.marks} <= {"function_call", _BAD_ID}:
        return
    for call in pairs.calls:
        if call.result is not None and not _is_own_output(call, messages[call.result_index]):
            yield call


def _is_own_output(call: Call, output: Message) -> bool:
    kind, marks = call.part.state, output.view.marks
    return kind in marks or kind == "server" or (kind in _HEARD_AS_FUNCTIONS and "function_call" in marks)


def _loose_reasoning(messages: Sequence[Message]) -> Iterator[int]:
    """Reasoning that nothing of the model's follows."""
    is_loose = True
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].kinds & REASONING:
            if is_loose:
                yield index
        else:
            is_loose = messages[index].view.role in ("user", "system")


def say(role: Role, text: str) -> Any:
    """A message of one text."""
    return {"type": "message", "role": role if role in ("system", "assistant") else "user", "content": text}


def put_result(part: Part, text: str) -> list[Change]:
    """The output becomes a text where a text may stand; its call id stays."""
    return [] if part.state == _FIXED else [(("output",), text)]


def answer_places(messages: Sequence[Message]) -> list[int]:
    """Behind the run of calls that a call stands in, so that calls made at once stay together."""
    return places_behind(messages, lambda message: any(part.kind == "call" for part in message.view.parts))


def answer(calls: Sequence[Call], following: Message | None) -> tuple[list[Change], list[Any]]:
    """An interrupted output for each call; a screenshot cannot be made up, so that call stays as it is."""
    return [], [item for call in calls if (item := _interrupted(call.part))]


def _interrupted(call: Part) -> dict[str, Any] | None:
    linked = {"call_id": call.id}
    match call.state:
        case "function_call" | "custom_tool_call" | "local_shell_call":
            return {"type": f"{call.state}_output", **linked, "output": INTERRUPTED}
        case "shell_call":
            printed = {"stdout": "", "stderr": INTERRUPTED, "outcome": {"type": "timeout"}}
            return {"type": "shell_call_output", **linked, "output": [printed]}
        case "apply_patch_call":
            return {"type": "apply_patch_call_output", **linked, "status": "failed", "output": INTERRUPTED}
        case "tool_search_call":
            return {"type": "tool_search_output", **linked, "execution": "client", "status": "completed", "tools": []}
        case "mcp_approval_request":
            refused = {"approve": False, "reason": INTERRUPTED}
            return {"type": "mcp_approval_response", "approval_request_id": call.id, **refused}
    return None


def tidy(messages: Sequence[Message], pairs: Pairs) -> dict[int, list[Change] | None]:
    """Ids of a wrong form go, outputs get the type of their call, reasoning that led to nothing goes."""
    changes: dict[int, list[Change] | None] = dict.fromkeys(_loose_reasoning(messages))
    for index, message in enumerate(messages):
        if _BAD_ID in message.view.marks and not any(part.kind == "reasoning" for part in message.view.parts):
            changes[index] = [(("id",), DELETE)]
    for call in _wrong_outputs(messages, pairs):
        # Only outputs of these two kinds have the same shape.
        if call.part.state in _TEXT_CALLS and messages[call.result_index].view.marks & _TEXT_CALLS:
            mine = changes.setdefault(call.result_index, [])
            if mine is not None:
                mine.append((("type",), f"{call.part.state}_output"))
    return changes


OPENAI_RESPONSES: Final = Dialect(
    NAME,
    recognise,
    read,
    violations,
    say,
    put_result,
    ends_anywhere,
    answer_places,
    answer,
    tidy,
    notice_role="system",
)

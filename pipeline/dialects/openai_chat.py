"""OpenAI Chat Completions: calls in `tool_calls`, a tool message for each result right behind them."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from pipeline.dialects.dialect import Dialect, Violation
from pipeline.dialects.pairing import pair_violations, places_behind
from pipeline.media import by_tiles, image_chars
from pipeline.notices import INTERRUPTED
from pipeline.splice import DELETE, Change
from pipeline.units import Call, Pairs
from pipeline.view import CALL, Message, Part, Path, Role, Slot, View

NAME: Final = "openai-chat"
_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_OWN_KEYS: Final = ("tool_calls", "tool_call_id", "tool_call_ids", "function_call", "refusal", "reasoning_content")
_OWN_BLOCKS: Final = frozenset({"image_url", "input_audio", "file", "refusal"})
_RESPONSES_BLOCKS: Final = frozenset({"input_text", "input_image", "input_file", "output_text"})
_REASONING: Final = ("reasoning_content", "reasoning")

_SPOKEN_TOO: Final = frozenset({*_REASONING, "tool_calls", "function_call"})  # keys that show parts beside the content

_NO_CALLS: Final = frozenset({"empty_tool_calls"})

# Rules about a call's arguments; compatible servers read them.
_NO_STRING: Final = "arguments_not_a_string"
_NO_JSON: Final = "arguments_not_json"

_size = msgspec.json.Encoder().encode
_json = msgspec.json.Decoder(Raw)


def recognise(item: Any) -> int:
    """Sure by its tool roles, keys or block types; plain role and content could be ours."""
    if not isinstance(item, dict) or _string(item.get("role")) not in _ROLES or "parts" in item or _is_responses(item):
        return 0
    if item["role"] in ("tool", "function") or any(key in item for key in _OWN_KEYS):
        return 2
    content = item.get("content")
    if isinstance(content, list):
        return 2 if any(_block_type(block) in _OWN_BLOCKS for block in content) else 1
    return 1


def _is_responses(item: dict[str, Any]) -> bool:
    content = item.get("content")
    blocks = content if isinstance(content, list) else []
    return item.get("type") is not None or any(_block_type(block) in _RESPONSES_BLOCKS for block in blocks)


def _block_type(block: Any) -> str:
    return _string(block.get("type")) if isinstance(block, dict) else ""


def read(item: Any) -> View:
    """The neutral view of one message."""
    if not isinstance(item, dict):
        return View("other", (Part("opaque", (), size=len(_size(item))),))
    role = _ROLES.get(_string(item.get("role")), "other")
    if role == "tool":
        return View(role, (_read_result(item),))
    content = item.get("content")
    if content and isinstance(content, str) and _SPOKEN_TOO.isdisjoint(item):
        return View(role, (_read_text(content),))
    parts = [part for key in _REASONING if (part := _read_reasoning(item.get(key), key))]
    parts += _read_content(content)
    parts += _read_calls(item)
    return View(role, tuple(parts), _NO_CALLS if item.get("tool_calls") == [] else frozenset())


def _read_text(content: str) -> Part:
    return Part("text", ("content",), ((("content",), content),))


def _read_reasoning(value: Any, key: str) -> Part | None:
    return Part("reasoning", (key,), (((key,), value),)) if isinstance(value, str) and value else None


def _read_content(content: Any) -> list[Part]:
    if isinstance(content, str):
        return [_read_text(content)] if content else []
    if not isinstance(content, list):
        return [] if content is None else [Part("opaque", ("content",), size=len(_size(content)))]
    return [_read_block(block, ("content", i)) for i, block in enumerate(content)]


def _read_block(block: Any, path: Path) -> Part:
    if not isinstance(block, dict):
        return Part("opaque", path, size=len(_size(block)))
    kind = _string(block.get("type"))
    if kind in ("text", "refusal") and isinstance(block.get(kind), str):
        return Part("text", path, (((*path, kind), block[kind]),))
    if kind in _OWN_BLOCKS:
        return Part("media", path, size=image_chars(_url(block), by_tiles))
    return Part("opaque", path, size=len(_size(block)))


def _url(block: dict[str, Any]) -> Any:
    image = block.get("image_url")
    return image.get("url") if isinstance(image, dict) else image


def _read_calls(item: dict[str, Any]) -> list[Part]:
    calls = item.get("tool_calls")
    parts = [_read_call(call, ("tool_calls", i)) for i, call in enumerate(calls)] if isinstance(calls, list) else []
    legacy = item.get("function_call")
    if isinstance(legacy, dict):
        parts.append(_read_function(legacy, ("function_call",), ""))
    return parts


def _read_call(call: Any, path: Path) -> Part:
    if not isinstance(call, dict):
        return Part("opaque", path, size=len(_size(call)))
    function: dict[str, Any] = next(
        (call[key] for key in ("function", "custom") if isinstance(call.get(key), dict)), {}
    )
    return _read_function(function, path, _string(call.get("id")))


def _read_function(function: dict[str, Any], path: Path, call_id: str) -> Part:
    arguments = function.get("arguments", function.get("input"))
    text = arguments if isinstance(arguments, str) else "" if arguments is None else _size(arguments).decode()
    return Part("call", path, ((path, text),), call_id, _string(function.get("name")), _breach(function, arguments))


def _breach(function: dict[str, Any], arguments: Any) -> str:
    if not isinstance(arguments, str):
        return _NO_STRING
    # What a custom tool is given is free text.
    return "" if "arguments" not in function or _is_json(arguments) else _NO_JSON


def _is_json(text: str) -> bool:
    try:
        _json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _read_result(item: dict[str, Any]) -> Part:
    content = item.get("content")
    slots: list[Slot] = []
    size = 0
    if isinstance(content, str):
        slots.append((("content",), content))
    elif isinstance(content, list):
        for part in (_read_block(block, ("content", i)) for i, block in enumerate(content)):
            slots.extend(part.slots)
            size += part.size
    elif content is not None:
        size = len(_size(content))
    ids = item.get("tool_call_ids")
    call_id = item.get("tool_call_id", ids[0] if isinstance(ids, list) and ids else None)
    return Part("result", (), tuple(slots), _string(call_id), _string(item.get("name")), size=size)


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def violations(messages: Sequence[Message], pairs: Pairs) -> list[Violation]:
    """Every rule of Chat Completions that the array breaks."""
    found = pair_violations(NAME, messages, pairs, answer_ends(messages))
    found += [Violation(f"{NAME}.{rule}", index) for rule, index in _content_breaks(messages)]
    return found


def _content_breaks(messages: Sequence[Message]) -> Iterator[tuple[str, int]]:
    for index, message in enumerate(messages):
        if message.kinds & CALL:
            for rule in dict.fromkeys(part.state for part in message.view.parts if part.kind == "call" and part.state):
                yield rule, index
        if message.view.marks is _NO_CALLS:
            yield "empty_tool_calls", index


def say(role: Role, text: str) -> Any:
    """A message of one text."""
    return {"role": role if role in ("system", "assistant") else "user", "content": text}


def put_result(part: Part, text: str) -> list[Change]:
    """The tool message's content becomes a text; its id stays."""
    return [(("content",), text)]


def answer_ends(messages: Sequence[Message]) -> list[int]:
    """A call is answered in the run of tool messages right behind it."""
    return places_behind(messages, lambda message: message.view.role == "tool")


def answer(calls: Sequence[Call], following: Message | None) -> tuple[list[Change], list[Any]]:
    """An interrupted tool message for each call."""
    return [], [_interrupted(call.part) for call in calls]


def _interrupted(call: Part) -> dict[str, Any]:
    if call.path == ("function_call",):
        return {"role": "function", "name": call.name, "content": INTERRUPTED}
    return {"role": "tool", "tool_call_id": call.id, "content": INTERRUPTED}


def tidy(messages: Sequence[Message], _: Pairs) -> dict[int, list[Change] | None]:
    """An empty list of calls goes; arguments become the text of what they are, no arguments that of an empty object."""
    changes: dict[int, list[Change] | None] = {}
    for index, message in enumerate(messages):
        if message.view.marks is _NO_CALLS:
            changes[index] = [(("tool_calls",), DELETE)]
        elif message.kinds & CALL and (found := [change for part in message.of_kind("call") for change in _told(part)]):
            changes[index] = found
    return changes


def _told(call: Part) -> list[Change]:
    # What was cut off or garbled stays as it came: nobody knows what it should have been.
    if not call.state or not call.name or (call.state == _NO_JSON and call.text):
        return []
    where = call.path if call.path == ("function_call",) else (*call.path, "function")
    return [((*where, "arguments"), call.text or "{}")]


OPENAI_CHAT: Final = Dialect(
    NAME, recognise, read, violations, say, put_result, answer_ends, answer_ends, answer, tidy, notice_role="system"
)

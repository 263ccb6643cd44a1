"""Conversations as neutral scripts, and how each wire format writes them down."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final, Literal

from msgspec import Struct

Role = Literal["system", "user", "assistant"]


class Result(Struct, frozen=True):
    """What a tool gave back: a text, several, nothing, or an object."""

    content: Any
    is_error: bool = False
    has_media: bool = False


class Call(Struct, frozen=True):
    """A tool call; without a result it still waits."""

    name: str
    arguments: Any
    result: Result | None
    id: str | None = ""


class Speech(Struct, frozen=True):
    """Someone says something."""

    role: Role
    texts: tuple[str, ...]
    has_media: bool = False
    reasoning: tuple[str, ...] = ()
    is_list: bool = False
    odd_block: Literal["", "server tool", "unknown"] = ""
    is_marked: bool = False
    fields: tuple[tuple[str, Any], ...] = ()


class Round(Struct, frozen=True):
    """The assistant calls tools, possibly in parallel, and they answer; ``follow`` is the user's word right behind."""

    calls: tuple[Call, ...]
    text: str = ""
    reasoning: tuple[str, ...] = ()
    follow: str = ""
    is_split: bool = False
    fields: tuple[tuple[str, Any], ...] = ()

    @property
    def waits(self) -> bool:
        """Whether a call has no result yet."""
        return any(call.result is None for call in self.calls)


class Compaction(Struct, frozen=True):
    """The provider's own summary of all that stands before it."""

    text: str


Event = Speech | Round | Compaction
Item = Any


class Token(str):
    """A piece of JSON written exactly so, such as a number no float can hold."""


class Spelling(Struct, frozen=True):
    """How JSON is written: separators, escapes and the order of keys."""

    comma: str = ","
    colon: str = ":"
    is_ascii: bool = False
    order: Literal["as is", "reversed", "sorted"] = "as is"


def spell(value: Any, spelling: Spelling) -> bytes:
    """A value as JSON in that spelling."""
    return _spell(value, spelling).encode()


def _spell(value: Any, spelling: Spelling) -> str:
    if isinstance(value, Token):
        return str(value)
    if isinstance(value, dict):
        fields = [
            f"{_spell(key, spelling)}{spelling.colon}{_spell(value[key], spelling)}" for key in _keys(value, spelling)
        ]
        return "{" + spelling.comma.join(fields) + "}"
    if isinstance(value, list | tuple):
        return "[" + spelling.comma.join(_spell(item, spelling) for item in value) + "]"
    return json.dumps(value, ensure_ascii=spelling.is_ascii)


def _keys(value: dict[str, Any], spelling: Spelling) -> list[str]:
    keys = list(value)
    return keys[::-1] if spelling.order == "reversed" else sorted(keys) if spelling.order == "sorted" else keys


def render(format_name: str, events: tuple[Event, ...] | list[Event]) -> list[list[Item]]:
    """The items of each event."""
    write = WRITERS[format_name]
    numbers = count(1)
    return [list(write(event, numbers)) for event in events]


def _anthropic(event: Event, numbers: Iterator[int]) -> Iterator[Item]:
    if isinstance(event, Compaction):
        yield {"role": "assistant", "content": [{"type": "compaction", "content": event.text}]}
    elif isinstance(event, Speech):
        yield {"role": event.role, "content": _anthropic_content(event), **dict(event.fields)}
    else:
        uses = [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in event.calls]
        said = [{"type": "text", "text": event.text}] if event.text else []
        yield {"role": "assistant", "content": [*_thinking(event.reasoning), *said, *uses], **dict(event.fields)}
        yield from _anthropic_results(event)


def _anthropic_content(speech: Speech) -> Any:
    blocks = [*_thinking(speech.reasoning), *({"type": "text", "text": text} for text in speech.texts)]
    if speech.has_media:
        blocks.append({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}})
    if speech.odd_block == "server tool":
        blocks.append({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}})
        blocks.append({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []})
    elif speech.odd_block:
        blocks.append({"type": "container_notes", "notes": [1, Token("1.50")], "caller": None})
    if speech.is_marked and blocks:
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
    is_plain = len(blocks) == 1 and blocks[0].keys() == {"type", "text"} and not speech.is_list
    return blocks[0]["text"] if is_plain else blocks


def _thinking(reasoning: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {"type": "thinking", "thinking": text, "signature": "c2lnbmF0dXJl"}
        if text != REDACTED
        else {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}
        for text in reasoning
    ]


def _anthropic_results(event: Round) -> Iterator[Item]:
    blocks = [_anthropic_result(call) for call in event.calls if call.result is not None]
    if event.is_split:
        yield from ({"role": "user", "content": [block]} for block in blocks[:-1])
        blocks = blocks[-1:]
    if event.follow and not event.waits:
        blocks.append({"type": "text", "text": event.follow})
    if blocks:
        yield {"role": "user", "content": blocks}


def _anthropic_result(call: Call) -> dict[str, Any]:
    assert call.result is not None
    result = call.result
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id, "content": result.content}
    if isinstance(result.content, list):
        block["content"] = [{"type": "text", "text": text} for text in result.content]
        if result.has_media:
            image = {"type": "base64", "media_type": "image/png", "data": PNG}
            block["content"].append({"type": "image", "source": image})
    if result.content is None:
        del block["content"]
    return block | {"is_error": True} if result.is_error else block


def _chat(event: Event, numbers: Iterator[int]) -> Iterator[Item]:
    if isinstance(event, Compaction):
        yield {"role": "user", "content": event.text}
    elif isinstance(event, Speech):
        yield {"role": event.role, "content": _chat_content(event), **_chat_reasoning(event), **dict(event.fields)}
    else:
        calls = [_chat_call(call) for call in event.calls]
        said = {"content": event.text or None}
        yield {"role": "assistant", **said, **_chat_reasoning(event), "tool_calls": calls, **dict(event.fields)}
        for call in event.calls:
            if call.result is not None:
                yield {"role": "tool", "tool_call_id": call.id, "content": _chat_result(call.result)}
        if event.follow and not event.waits:
            yield {"role": "user", "content": event.follow}


def _chat_content(speech: Speech) -> Any:
    blocks: list[Any] = [{"type": "text", "text": text} for text in speech.texts]
    if speech.has_media:
        blocks.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}})
    if speech.odd_block:
        blocks.append({"type": "container_notes", "notes": [1, Token("1.50")]})
    is_plain = len(blocks) == 1 and blocks[0].keys() == {"type", "text"} and not speech.is_list
    return blocks[0]["text"] if is_plain else blocks


def _chat_reasoning(event: Speech | Round) -> dict[str, Any]:
    return {"reasoning_content": "\n".join(event.reasoning)} if event.reasoning else {}


def _chat_call(call: Call) -> Any:
    is_text = isinstance(call.arguments, dict)
    arguments = spell(call.arguments, Spelling()).decode() if is_text else call.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _chat_result(result: Result) -> Any:
    if isinstance(result.content, list):
        return [{"type": "text", "text": text} for text in result.content]
    return result.content


def _responses(event: Event, numbers: Iterator[int]) -> Iterator[Item]:
    if isinstance(event, Compaction):
        yield {"type": "compaction", "id": f"cmp_{next(numbers)}", "encrypted_content": event.text}
        return
    yield from (_reasoning_item(text, next(numbers)) for text in event.reasoning)
    if isinstance(event, Speech):
        said = {"type": "message", "role": event.role, "content": _responses_content(event), **dict(event.fields)}
        yield said | ({"id": f"msg_{next(numbers)}"} if event.reasoning else {})
        if event.odd_block == "server tool":
            yield {
                "type": "web_search_call",
                "id": f"ws_{next(numbers)}",
                "status": "completed",
                "action": {"query": "x"},
            }
        return
    if event.text:
        content = [{"type": "output_text", "text": event.text}]
        yield {"type": "message", "id": f"msg_{next(numbers)}", "role": "assistant", "content": content}
    yield from (_responses_call(call, next(numbers)) | dict(event.fields) for call in event.calls)
    yield from (_responses_output(call) for call in event.calls if call.result is not None)
    if event.follow and not event.waits:
        yield {"role": "user", "content": event.follow}


def _reasoning_item(text: str, number: int) -> Item:
    summary = [] if text == REDACTED else [{"type": "summary_text", "text": text}]
    return {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": "ZW5jcnlwdGVk"}


def _responses_content(speech: Speech) -> Any:
    kind = "output_text" if speech.role == "assistant" else "input_text"
    blocks: list[Any] = [{"type": kind, "text": text} for text in speech.texts]
    if speech.has_media:
        blocks.append({"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"})
    if speech.odd_block == "unknown":
        blocks.append({"type": "container_notes", "notes": [1, Token("1.50")]})
    return speech.texts[0] if len(blocks) == 1 and speech.texts and not speech.is_list else blocks


def _responses_call(call: Call, number: int) -> dict[str, Any]:
    if call.name == FREEFORM_TOOL:
        return {
            "type": "custom_tool_call",
            "id": f"ctc_{number}",
            "call_id": call.id,
            "name": call.name,
            "input": PATCH,
        }
    function = _chat_call(call)["function"]
    return {"type": "function_call", "id": f"fc_{number}", "call_id": call.id, **function, "status": "completed"}


def _responses_output(call: Call) -> Item:
    assert call.result is not None
    kind = "custom_tool_call_output" if call.name == FREEFORM_TOOL else "function_call_output"
    content = call.result.content
    output = [{"type": "input_text", "text": text} for text in content] if isinstance(content, list) else content
    return {"type": kind, "call_id": call.id, "output": output}


def _gemini(event: Event, numbers: Iterator[int]) -> Iterator[Item]:
    if isinstance(event, Compaction):
        yield {"role": "user", "parts": [{"text": event.text}]}
    elif isinstance(event, Speech):
        role = "model" if event.role == "assistant" else "user"
        yield {"role": role, "parts": _gemini_parts(event), **dict(event.fields)}
    else:
        said = [{"text": event.text}] if event.text else []
        yield {"role": "model", "parts": [*_thoughts(event.reasoning), *said, *_function_calls(event)]}
        answers = [_function_response(call) for call in event.calls if call.result is not None]
        if answers:
            yield {"role": "user", "parts": answers, **dict(event.fields)}
        if event.follow and not event.waits:
            yield {"role": "user", "parts": [{"text": event.follow}]}


def _gemini_parts(speech: Speech) -> list[Any]:
    parts: list[Any] = [*_thoughts(speech.reasoning), *({"text": text} for text in speech.texts)]
    if speech.has_media:
        key, mime = ("inline_data", "mime_type") if speech.is_list else ("inlineData", "mimeType")
        parts.append({key: {mime: "image/png", "data": PNG}})
    if speech.odd_block == "server tool":
        parts.append({"toolCall": {"id": "x1", "args": {"n": Token("1.50")}}, "thoughtSignature": "c2ln"})
    elif speech.odd_block:
        parts.append({"executableCode": {"language": "PYTHON", "code": "print(1)"}})
    return parts


def _thoughts(reasoning: tuple[str, ...]) -> list[Any]:
    return [{"text": text, "thought": True} for text in reasoning]


def _function_calls(event: Round) -> list[Any]:
    is_snake = event.is_split
    call_key, signature_key = (
        ("function_call", "thought_signature") if is_snake else ("functionCall", "thoughtSignature")
    )
    parts: list[Any] = [
        {call_key: {"name": call.name, "args": call.arguments, **_gemini_id(call)}} for call in event.calls
    ]
    parts[0][signature_key] = "c2lnbmF0dXJl"
    return parts


def _function_response(call: Call) -> Any:
    assert call.result is not None
    content = call.result.content
    response = content if isinstance(content, dict) else {} if content is None else {"output": content}
    answer = {"name": call.name, "response": response, **_gemini_id(call)}
    if call.result.has_media:
        answer["parts"] = [{"inlineData": {"mimeType": "image/png", "data": PNG}}]
    return {"functionResponse": answer}


def _gemini_id(call: Call) -> dict[str, Any]:
    return {"id": call.id} if call.id else {}


def _opencode(event: Event, numbers: Iterator[int]) -> Iterator[Item]:
    number = next(numbers)
    if isinstance(event, Compaction):
        info = _info("assistant", number) | {"summary": True}
        yield {"info": info, "parts": [_part("text", number, text=event.text)]}
    elif isinstance(event, Speech):
        role = "assistant" if event.role == "assistant" else "user"
        parts = [_part("reasoning", number, text=text) for text in event.reasoning]
        parts += [_part("text", number, text=text) for text in event.texts]
        if event.has_media:
            parts.append(_part("file", number, mime="image/png", url=f"data:image/png;base64,{PNG}"))
        if event.odd_block:
            parts.append(_part("patch", number, hash="8916a1db", files=["src/app.py"]))
        yield {"info": _info(role, number) | dict(event.fields), "parts": parts}
    else:
        parts = [_part("step-start", number), *(_part("reasoning", number, text=text) for text in event.reasoning)]
        parts += [_part("text", number, text=event.text)] if event.text else []
        parts += [_tool_part(call, number) for call in event.calls]
        yield {"info": _info("assistant", number) | dict(event.fields), "parts": parts}
        if event.follow and not event.waits:
            follow = next(numbers)
            yield {"info": _info("user", follow), "parts": [_part("text", follow, text=event.follow)]}


def _info(role: str, number: int) -> dict[str, Any]:
    return {"id": f"msg_{number}", "role": role, "sessionID": "ses_1", "time": {"created": 1_777_581_131_000 + number}}


def _part(kind: str, number: int, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": f"prt_{number}", "messageID": f"msg_{number}", **fields}


def _tool_part(call: Call, number: int) -> dict[str, Any]:
    time = {"start": 1_777_581_131_000 + number, "end": 1_777_581_131_500 + number}
    state: dict[str, Any] = {"status": "running", "input": call.arguments, "time": {"start": time["start"]}}
    if call.result is not None and call.result.is_error:
        state = {"status": "error", "input": call.arguments, "error": call.result.content, "time": time}
    elif call.result is not None:
        state = {
            "status": "completed",
            "input": call.arguments,
            "output": call.result.content,
            "time": time,
            "title": "",
        }
    return _part("tool", number, tool=call.name, callID=call.id, state=state)


FREEFORM_TOOL: Final = "apply_patch"
REDACTED: Final = "(redacted)"
PATCH: Final = "*** Begin Patch\n*** Update File: src/app.py\n-old\n+new\n*** End Patch"
PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

WRITERS: Final[dict[str, Callable[[Event, Iterator[int]], Iterator[Item]]]] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
    "opencode": _opencode,
}

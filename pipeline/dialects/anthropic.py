"""Anthropic Messages: calls in assistant content, results first in the user message that follows."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from pipeline.dialects.dialect import Dialect, Violation
from pipeline.dialects.pairing import ends_between_speakers, pair_violations, places_behind_speaker
from pipeline.media import image_chars
from pipeline.notices import INTERRUPTED
from pipeline.splice import DELETE, Change, Prepend
from pipeline.units import Call, Pairs
from pipeline.view import CALL, PAIRED, REASONING, RESULT, TEXT, Message, Part, Path, Role, Slot, View

NAME: Final = "anthropic"
MAX_CACHE_MARKS: Final = 4
_ID: Final = re.compile(r"[A-Za-z0-9_-]+")
_NOT_ID: Final = re.compile(r"[^A-Za-z0-9_-]")
_OWN_BLOCKS: Final = frozenset(
    {
        "tool_use",
        "tool_result",
        "thinking",
        "redacted_thinking",
        "image",
        "document",
        "server_tool_use",
        "container_upload",
    }
)
_MEDIA: Final = frozenset({"image", "document", "container_upload"})
_NO_MARKS: Final[frozenset[str]] = frozenset()
_COMPACTION: Final = frozenset({"compaction"})
_ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant", "system": "system"}

_size = msgspec.json.Encoder().encode


class _Blocks(Struct):
    content: list[Raw]


_content = msgspec.json.Decoder(_Blocks)
_plain = msgspec.json.Decoder(float_hook=str)


def recognise(item: Any) -> int:
    """Sure by its block types; plain role and content could be ours."""
    if not isinstance(item, dict) or _string(item.get("role")) not in _ROLES:
        return 0
    if "tool_calls" in item or "function_call" in item or "parts" in item:
        return 0
    content = item.get("content")
    if isinstance(content, str):
        return 0 if "type" in item else 1
    if not isinstance(content, list) or item.get("type", "message") != "message":
        return 0
    return 2 if any(isinstance(block, dict) and _string(block.get("type")) in _OWN_BLOCKS for block in content) else 1


def read(item: Any) -> View:
    """The neutral view of one message."""
    if not isinstance(item, dict):
        return View("other", (Part("opaque", (), size=len(_size(item))),))
    content = item.get("content")
    role = _ROLES.get(_string(item.get("role")), "other")
    if isinstance(content, str):
        return View(role, (Part("text", ("content",), ((("content",), content),)),))
    if not isinstance(content, list):
        return View(role, () if content is None else (Part("opaque", ("content",), size=len(_size(content))),))
    parts = tuple([_read_block(block, ("content", i)) for i, block in enumerate(content)])
    cache_marks = 0
    marks = _NO_MARKS
    for block in content:
        if isinstance(block, dict):
            cache_marks += "cache_control" in block and _is_marked(block)
            marks = _COMPACTION if block.get("type") == "compaction" else marks
    return View(role, parts, marks, cache_marks)


def _read_block(block: Any, path: Path) -> Part:
    if not isinstance(block, dict):
        return Part("opaque", path, size=len(_size(block)))
    kind = _string(block.get("type"))
    if kind == "text" and isinstance(block.get("text"), str):
        return Part("text", path, (((*path, "text"), block["text"]),))
    if kind == "tool_use":
        slot = ((*path, "input"), _size(block.get("input")).decode())
        return Part("call", path, (slot,), _string(block.get("id")), _string(block.get("name")))
    if kind == "tool_result":
        return _read_result(block, path)
    if kind == "thinking":
        return Part("reasoning", path, (((*path, "thinking"), _string(block.get("thinking"))),), state="bound")
    if kind == "redacted_thinking":
        return Part("reasoning", path, state="bound", size=len(_string(block.get("data"))))
    if kind in _MEDIA:
        return Part("media", path, size=_media_chars(block))
    return Part("opaque", path, size=len(_size(block)))


def _media_chars(block: dict[str, Any]) -> int:
    source = block.get("source")
    return image_chars(source.get("data") if isinstance(source, dict) else None)


def _read_result(block: dict[str, Any], path: Path) -> Part:
    content = block.get("content")
    slots: list[Slot] = []
    size = 0
    if isinstance(content, str):
        slots.append(((*path, "content"), content))
    elif isinstance(content, list):
        for i, inner in enumerate(content):
            if isinstance(inner, dict) and inner.get("type") == "text" and isinstance(inner.get("text"), str):
                slots.append(((*path, "content", i, "text"), inner["text"]))
            elif isinstance(inner, dict) and _string(inner.get("type")) in _MEDIA:
                size += _media_chars(inner)
            else:
                size += len(_size(inner))
    elif content is not None:
        size = len(_size(content))
    state = "error" if block.get("is_error") is True else ""
    return Part("result", path, tuple(slots), _string(block.get("tool_use_id")), state=state, size=size)


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def violations(messages: Sequence[Message], pairs: Pairs) -> list[Violation]:
    """Every rule of the Messages API that the array breaks."""
    found = pair_violations(NAME, messages, pairs, ends_between_speakers(messages))
    found += [Violation(f"{NAME}.{rule}", index) for rule, index in _order_breaks(messages)]
    found += [Violation(f"{NAME}.{rule}", index) for rule, index in _id_breaks(messages)]
    found += [Violation(f"{NAME}.{rule}", index) for rule, index in _content_breaks(messages)]
    return found


def _order_breaks(messages: Sequence[Message]) -> Iterator[tuple[str, int]]:
    first = next((i for i, message in enumerate(messages) if message.view.role != "system"), None)
    if first is not None and messages[first].view.role == "assistant":
        yield "first_role", first
    has_text = False
    for index, message in enumerate(messages):
        role = message.view.role
        if role == "user":
            for part in message.view.parts:
                has_text = has_text or part.kind not in ("result", "opaque")
                if part.kind == "result" and has_text:
                    yield "result_after_text", index
                if part.kind == "call":
                    yield "call_role", index
        else:
            has_text = False
            if message.kinds & RESULT:
                yield "result_role", index


def _id_breaks(messages: Sequence[Message]) -> Iterator[tuple[str, int]]:
    seen: set[str] = set()
    for index, message in enumerate(messages):
        if not message.kinds & PAIRED:
            continue
        for part in message.view.parts:
            if part.kind in ("call", "result") and not _ID.fullmatch(part.id):
                yield "bad_id", index
            if part.kind == "call" and part.id:
                if part.id in seen:
                    yield "duplicate_call_id", index
                seen.add(part.id)


def _content_breaks(messages: Sequence[Message]) -> Iterator[tuple[str, int]]:
    last = len(messages) - 1
    continued = _continued(messages)
    marks = 0
    for index, message in enumerate(messages):
        is_final_assistant = index == last and message.view.role == "assistant"
        if not is_final_assistant and (_is_blank(message) or _has_empty_text(message)):
            yield "empty_content", index
        if is_final_assistant and message.view.parts and _trailing_blank(message.view.parts[-1]):
            yield "trailing_whitespace", index
        if index == continued and _thinking_late(message):
            yield "thinking_not_first", index
        marks += message.view.cache_marks
        if message.view.cache_marks and marks > MAX_CACHE_MARKS:
            yield "cache_marks", index


def _is_blank(message: Message) -> bool:
    return not message.kinds & ~TEXT and all(not part.text.strip() for part in message.view.parts)


def _has_empty_text(message: Message) -> bool:
    return message.kinds & TEXT != 0 and any(part.kind == "text" and part.text == "" for part in message.view.parts)


def _trailing_blank(part: Part) -> bool:
    return part.kind == "text" and part.text != part.text.rstrip()


def _continued(messages: Sequence[Message]) -> int:
    """The assistant message whose calls are being answered at the end of the array; -1 when there is none."""
    index = len(messages) - 1
    while index >= 0 and messages[index].kinds == RESULT:
        index -= 1
    return index if index >= 0 and messages[index].view.role == "assistant" and messages[index].kinds & CALL else -1


def _thinking_late(message: Message) -> bool:
    return message.kinds & REASONING != 0 and message.view.parts[0].kind != "reasoning"


def say(role: Role, text: str) -> Any:
    """A message of one text; the API knows only two speakers."""
    return {"role": "assistant" if role == "assistant" else "user", "content": text}


def put_result(part: Part, text: str) -> list[Change]:
    """The result's content becomes a text; its id and error flag stay."""
    return [((*part.path, "content"), text)]


def answer(calls: Sequence[Call], following: Message | None) -> tuple[list[Change], list[Any]]:
    """Interrupted results in front of the following user message, or in a message of their own."""
    blocks = [
        {"type": "tool_result", "tool_use_id": call.part.id, "content": INTERRUPTED, "is_error": True} for call in calls
    ]
    if following is None:
        return [], [{"role": "user", "content": blocks}]
    if following.view.parts and following.view.parts[0].path == ("content",):
        text = following.view.parts[0].text
        return [(("content",), [*blocks, {"type": "text", "text": text}])], []
    return [(("content",), Prepend(blocks))], []


def tidy(messages: Sequence[Message], pairs: Pairs) -> dict[int, list[Change] | None]:
    """Ids become legal and unique, results come before text, empty blocks and spare cache marks go."""
    changes: dict[int, list[Change] | None] = {}
    for index, message in enumerate(messages):
        is_final_assistant = index == len(messages) - 1 and message.view.role == "assistant"
        if not is_final_assistant and _is_blank(message):
            changes[index] = None
        elif found := _tidy_content(message, is_final_assistant):
            changes[index] = found
    for index, change in [*_id_changes(pairs), *_spare_marks(messages)]:
        mine = changes.setdefault(index, [])
        if mine is not None and not any(path == ("content",) for path, _ in mine):
            mine.append(change)
    return changes


def _tidy_content(message: Message, is_final_assistant: bool) -> list[Change]:
    parts = message.view.parts
    if message.view.role == "user" and _is_out_of_order(parts):
        return [(("content",), _results_first(message))]
    changes: list[Change] = [(part.path, DELETE) for part in parts if part.kind == "text" and part.text == ""]
    if is_final_assistant and not changes and parts and _trailing_blank(parts[-1]):
        path, text = parts[-1].slots[0]
        changes.append((path, text.rstrip()))
    return changes


def _results_first(message: Message) -> list[Raw]:
    blocks = _content.decode(message.raw).content
    order = sorted(range(len(blocks)), key=lambda i: message.view.parts[i].kind != "result")
    return [blocks[i] for i in order]


def _is_out_of_order(parts: Sequence[Part]) -> bool:
    kinds = [part.kind == "result" for part in parts]
    return any(later and not earlier for earlier, later in pairwise(kinds))


def _id_changes(pairs: Pairs) -> Iterator[tuple[int, Change]]:
    taken: set[str] = set()
    strays = {part.id for _, part in pairs.unmatched}  # a result that answers nothing must not begin to
    for number, call in enumerate(pairs.calls):
        legal = _NOT_ID.sub("_", call.part.id) or f"call_{number}"
        new = legal if legal not in taken else f"{legal}_{number}"
        while new != call.part.id and new in strays:
            new = f"{new}_{number}"
        taken.add(new)
        if new != call.part.id:
            yield call.index, ((*call.part.path, "id"), new)
            if call.result is not None:
                yield call.result_index, ((*call.result.path, "tool_use_id"), new)


def _spare_marks(messages: Sequence[Message]) -> Iterator[tuple[int, Change]]:
    """The oldest cache marks beyond the limit: a newer one covers all that an older one did."""
    spare = sum(message.view.cache_marks for message in messages) - MAX_CACHE_MARKS
    for index, message in enumerate(messages if spare > 0 else ()):
        if not message.view.cache_marks:
            continue
        for i, block in enumerate(_content.decode(message.raw).content):
            if spare > 0 and _is_marked(_plain.decode(block)):
                spare -= 1
                yield index, (("content", i, "cache_control"), DELETE)


def _is_marked(block: Any) -> bool:
    return isinstance(block, dict) and bool(block.get("cache_control"))


ANTHROPIC: Final = Dialect(
    NAME,
    recognise,
    read,
    violations,
    say,
    put_result,
    ends_between_speakers,
    places_behind_speaker,
    answer,
    tidy,
    needs_user_first=True,
)

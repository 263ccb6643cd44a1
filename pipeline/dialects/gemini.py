"""Gemini contents: as many responses right behind a content as it has calls; signatures never leave their part."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from pipeline.dialects.dialect import Dialect, Violation
from pipeline.dialects.pairing import ends_between_speakers, pair_violations, places_behind_speaker
from pipeline.media import by_smallness, image_chars
from pipeline.notices import INTERRUPTED, RESUMED
from pipeline.splice import DELETE, Append, Change
from pipeline.units import Call, Pairs, is_prompt
from pipeline.view import Kind, Message, Part, Path, Role, Slot, View

NAME: Final = "gemini"
MAX_LEAVES: Final = 256
MAX_LEAF_DEPTH: Final = 16
_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "function": "user",
    "model": "assistant",
    "system": "system",
}
# Both spellings are accepted; what we write takes the one that it answers.
_CALL: Final = {"functionCall": "functionResponse", "function_call": "function_response"}
_RESPONSE: Final = tuple(_CALL.values())
_MEDIA: Final = ("inlineData", "inline_data", "fileData", "file_data")
_SIGNATURE: Final = ("thoughtSignature", "thought_signature")
_OWN_KEYS: Final = frozenset(
    {
        *_CALL,
        *_RESPONSE,
        *_MEDIA,
        *_SIGNATURE,
        "text",
        "executableCode",
        "codeExecutionResult",
        "toolCall",
        "toolResponse",
    }
)
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")

_BAD_ROLE: Final = frozenset({"bad_role"})
_SIGNED: Final = "signed"

_size = msgspec.json.Encoder().encode


class _Parts(Struct):
    parts: list[Raw] | None = None


_parts = msgspec.json.Decoder(_Parts)


def recognise(item: Any) -> int:
    """Sure by its parts, which have no type."""
    if not isinstance(item, dict) or _role(item) == "other" or "info" in item:
        return 0
    parts = item.get("parts")
    if not isinstance(parts, list) or any(isinstance(part, dict) and "type" in part for part in parts):
        return 0
    return 2 if any(isinstance(part, dict) and not _OWN_KEYS.isdisjoint(part) for part in parts) else 1


def read(item: Any) -> View:
    """The neutral view of one content."""
    if not isinstance(item, dict):
        return View("other", (Part("opaque", (), size=len(_size(item))),))
    role = _role(item)
    marks = _BAD_ROLE if role in ("system", "other") else frozenset[str]()
    parts = item.get("parts")
    if not isinstance(parts, list):
        return View(role, () if parts is None else (Part("opaque", ("parts",), size=len(_size(parts))),), marks)
    return View(role, tuple(_read_part(part, ("parts", i)) for i, part in enumerate(parts)), marks)


def _role(item: dict[str, Any]) -> Role:
    role = item.get("role")
    return "user" if role is None else _ROLES.get(_string(role), "other")


def _read_part(part: Any, path: Path) -> Part:
    if not isinstance(part, dict):
        return Part("opaque", path, size=len(_size(part)))
    if isinstance(part.get("text"), str):
        kind: Kind = "reasoning" if part.get("thought") is True else "text"
        return Part(kind, path, (((*path, "text"), part["text"]),))
    for key in _CALL:
        if isinstance(part.get(key), dict):
            return _read_call(part[key], (*path, key), any(part.get(name) for name in _SIGNATURE))
    for key in _RESPONSE:
        if isinstance(part.get(key), dict):
            return _read_response(part[key], (*path, key))
    if any(key in part for key in _MEDIA):
        return Part("media", path, size=_media_chars(part))
    return Part("opaque", path, size=len(_size(part)))


def _media_chars(part: Any) -> int:
    holders = [part[key] for key in _MEDIA[:2] if key in part] if isinstance(part, dict) else []
    data = holders[0].get("data") if holders and isinstance(holders[0], dict) else None
    return image_chars(data, by_smallness)


def _read_call(call: dict[str, Any], path: Path, is_signed: bool) -> Part:
    slot = ((*path, "args"), _size(call.get("args") or {}).decode())
    return Part(
        "call", path[:2], (slot,), _string(call.get("id")), _string(call.get("name")), _SIGNED if is_signed else ""
    )


def _read_response(response: dict[str, Any], path: Path) -> Part:
    content = response.get("response")
    slots: list[Slot] = []
    size = _read_leaves(content, (*path, "response"), slots)
    if not slots:
        slots.append(((*path, "response"), ""))  # where the content would be
    inner = response.get("parts")
    size += sum(map(_media_chars, inner)) if isinstance(inner, list) else 0
    state = "error" if isinstance(content, dict) and content.get("error") else ""
    return Part(
        "result", path[:2], tuple(slots), _string(response.get("id")), _string(response.get("name")), state, size
    )


def _read_leaves(value: Any, path: Path, slots: list[Slot]) -> int:
    """Collect the texts of a response; the size of all else."""
    if isinstance(value, str):
        # Numbers arrive as their digits, and a text of digits is not worth an edit.
        if len(slots) >= MAX_LEAVES or _NUMBER.fullmatch(value):
            return len(value)
        slots.append((path, value))
        return 0
    if not isinstance(value, dict | list) or len(path) > MAX_LEAF_DEPTH:
        return len(_size(value))
    if isinstance(value, dict):
        return sum(len(key) + 4 + _read_leaves(child, (*path, key), slots) for key, child in value.items())
    return sum(1 + _read_leaves(child, (*path, i), slots) for i, child in enumerate(value))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def violations(messages: Sequence[Message], pairs: Pairs) -> list[Violation]:
    """Every rule of generateContent that the array breaks; a finished conversation breaks one by its end."""
    found = pair_violations(NAME, messages, pairs, ends_between_speakers(messages))
    found += [Violation(f"{NAME}.response_count", index) for index in _stray_responses(messages, pairs)]
    found += [Violation(f"{NAME}.missing_signature", index) for index in _unsigned_steps(messages)]
    found += [Violation(f"{NAME}.{rule}", index) for rule, index in _order_breaks(messages)]
    return found


def _order_breaks(messages: Sequence[Message]) -> Iterator[tuple[str, int]]:
    if messages and messages[0].view.role == "assistant":
        yield "first_role", 0
    for index, message in enumerate(messages):
        if message.view.marks is _BAD_ROLE:
            yield "bad_role", index
        if _calls_after_model(messages, index):
            yield "call_after_model", index
    if messages and messages[-1].view.role == "assistant" and not _has_calls(messages[-1]):
        yield "last_role", len(messages) - 1


def _calls_after_model(messages: Sequence[Message], index: int) -> bool:
    return (
        index > 0
        and messages[index - 1].view.role == messages[index].view.role == "assistant"
        and _has_calls(messages[index])
    )


def _has_calls(message: Message) -> bool:
    return any(part.kind == "call" for part in message.view.parts)


def _stray_responses(messages: Sequence[Message], pairs: Pairs) -> list[int]:
    """Contents with responses that stand behind the one where all responses to a call content belong."""
    places, ends = places_behind_speaker(messages), ends_between_speakers(messages)
    calls = pairs.calls
    return sorted({call.result_index for call in calls if places[call.index] < call.result_index < ends[call.index]})


def _unsigned_steps(messages: Sequence[Message]) -> list[int]:
    """Steps of the current turn whose first call has no signature although another call of the turn has one."""
    start = next((i for i in range(len(messages) - 1, -1, -1) if is_prompt(messages[i])), 0)
    steps = [(i, message.of_kind("call")) for i, message in enumerate(messages[start:], start) if _has_calls(message)]
    if not any(call.state == _SIGNED for _, calls in steps for call in calls):
        return []
    return [index for index, calls in steps if calls[0].state != _SIGNED]


def say(role: Role, text: str) -> Any:
    """A user content of one text, whoever speaks: a model text in front of a function call would be refused."""
    return {"role": "user", "parts": [{"text": text}]}


def put_result(part: Part, text: str) -> list[Change]:
    """The response becomes one text and its media go; name and id stay."""
    response = part.slots[0][0][:3]
    return [((*response, "response"), {"output": text}), ((*response, "parts"), DELETE)]


def answer(calls: Sequence[Call], following: Message | None) -> tuple[list[Change], list[Any]]:
    """Interrupted responses behind those that are there, or in a content of their own."""
    parts = [_interrupted(call.part) for call in calls]
    if following is None:
        return [], [{"role": "user", "parts": parts}]
    return [(("parts",), Append(parts))], []


def _interrupted(call: Part) -> dict[str, Any]:
    response = {"id": call.id} if call.id else {}
    key = _CALL[str(call.slots[0][0][2])]
    return {key: {**response, "name": call.name, "response": {"error": INTERRUPTED}}}


def tidy(messages: Sequence[Message], pairs: Pairs) -> dict[int, list[Change] | None]:
    """Neighbours accepted only together become one content; what keeps two model contents apart stays."""
    changes: dict[int, list[Change] | None] = {}
    for group in [*_split_responses(messages, pairs), *_split_calls(messages, pairs)]:
        changes.update(_merge(messages, group))
    for index in _fillers(messages, pairs):
        changes.setdefault(index, [(("parts",), [{"text": RESUMED}])])
    return changes


def _split_responses(messages: Sequence[Message], pairs: Pairs) -> Iterator[range]:
    """Each run of user contents over which the responses to one call content are spread."""
    strays = _stray_responses(messages, pairs)
    first: int | None = None
    for number, index in enumerate(strays):
        first = index - 1 if first is None else first
        if number + 1 == len(strays) or strays[number + 1] != index + 1:
            yield range(first, index + 1)
            first = None


def _split_calls(messages: Sequence[Message], pairs: Pairs) -> Iterator[range]:
    """Each run of model contents up to its last calls, when those are not the first; waiting calls are left alone."""
    waiting = {call.index for call in pairs.calls if call.result is None}
    start, last = 0, -1
    for index, message in enumerate(messages):
        if message.view.role != "assistant":
            start, last = index + 1, -1
            continue
        if _has_calls(message):
            last = index
        is_end = index + 1 == len(messages) or messages[index + 1].view.role != "assistant"
        if is_end and last > start and last not in waiting:
            yield range(start, last + 1)


def _merge(messages: Sequence[Message], group: range) -> dict[int, list[Change] | None]:
    """All parts of a group in its first content that came with the snapshot; the others go."""
    if any(part.path == ("parts",) for i in group for part in messages[i].view.parts):
        return {}  # not a list: nobody can say what it holds
    target = next((i for i in group if not messages[i].is_added), group[0])
    parts = [part for i in group for part in _parts.decode(messages[i].raw).parts or ()]
    return {i: [(("parts",), parts)] if i == target else None for i in group}


def _fillers(messages: Sequence[Message], pairs: Pairs) -> Iterator[int]:
    """User contents of nothing but unmatched responses whose removal would leave the model speaking twice, or last."""
    lost: dict[int, int] = {}
    for index, _ in pairs.unmatched:
        lost[index] = lost.get(index, 0) + 1
    waiting = {call.index for call in pairs.calls if call.result is None}
    gone = [index for index, count in lost.items() if count == len(messages[index].view.parts)]
    removed = set(gone)
    for index in gone:
        follows_model = index > 0 and messages[index - 1].view.role == "assistant" and index - 1 not in waiting
        behind = index + 1
        if follows_model:
            while behind in removed:
                behind += 1
            if behind == len(messages) or messages[behind].view.role == "assistant":
                yield index


GEMINI: Final = Dialect(
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

"""OpenCode sessions: `info` and `parts`; a tool part is call and result in one, its output perhaps compacted."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pipeline.dialects.dialect import Dialect, Violation
from pipeline.dialects.pairing import ends_anywhere, places_behind_speaker
from pipeline.media import image_chars
from pipeline.notices import COMPACTED
from pipeline.splice import Change
from pipeline.units import Call, Pairs
from pipeline.view import Message, Part, Path, Role, View

NAME: Final = "opencode"
_ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant", "system": "system"}
# Bookkeeping of the session: it never reaches a model.
_UNSEEN: Final = frozenset(
    {"step-start", "step-finish", "patch", "snapshot", "compaction", "agent", "retry", "subtask"}
)

_SUMMARY: Final = "summary"
_BAD_SHAPE: Final = "bad_shape"
_NO_STATE: Final = "tool_without_state"
_FIXED: Final = "fixed"  # a result that cannot take a mark

_size = msgspec.json.Encoder().encode


def recognise(item: Any) -> int:
    """Sure by `info` and `parts`."""
    return 2 if isinstance(item, dict) and _has_shape(item) else 0


def _has_shape(item: dict[str, Any]) -> bool:
    return isinstance(item.get("info"), dict) and isinstance(item.get("parts"), list)


def read(item: Any) -> View:
    """The neutral view of one message; a tool part gives a call and, once it has ended, a result at the same path."""
    if not isinstance(item, dict) or not _has_shape(item):
        return View("other", (Part("opaque", (), size=len(_size(item))),), frozenset({_BAD_SHAPE}))
    parts: list[Part] = []
    marks = {_SUMMARY} if item["info"].get("summary") is True else set()
    for i, part in enumerate(item["parts"]):
        if isinstance(part, dict) and part.get("type") == "tool":
            parts += _read_tool(part, ("parts", i))
            if not isinstance(part.get("state"), dict):
                marks.add(_NO_STATE)
        else:
            parts.append(_read_part(part, ("parts", i)))
    return View(_ROLES.get(_string(item["info"].get("role")), "other"), tuple(parts), frozenset(marks))


def _read_part(part: Any, path: Path) -> Part:
    kind = _string(part.get("type")) if isinstance(part, dict) else ""
    if kind in ("text", "reasoning") and isinstance(part.get("text"), str):
        return Part("text" if kind == "text" else "reasoning", path, (((*path, "text"), part["text"]),))
    # A text file is also there as a text part, which is what the model gets.
    if kind == "file" and part.get("mime") != "text/plain":
        return Part("media", path, size=_media_chars(part))
    is_unseen = kind == "file" or kind in _UNSEEN
    return Part("opaque", path, size=0 if is_unseen else len(_size(part)))


def _media_chars(part: Any) -> int:
    return image_chars(part.get("url") if isinstance(part, dict) else None)


def _read_tool(part: dict[str, Any], path: Path) -> list[Part]:
    state = part.get("state")
    state = state if isinstance(state, dict) else {}
    call_id, name = _string(part.get("callID")), _string(part.get("tool"))
    asked = (((*path, "state", "input"), _size(state.get("input", {})).decode()),)
    if state.get("status") not in ("completed", "error"):
        return [Part("call", path, asked, call_id, name, "pending")]
    result = _read_error if state["status"] == "error" else _read_output
    return [Part("call", path, asked, call_id, name), result(state, path, call_id, name)]


def _read_error(state: dict[str, Any], path: Path, call_id: str, name: str) -> Part:
    return Part("result", path, (), call_id, name, "error", len(_string(state.get("error"))))


def _read_output(state: dict[str, Any], path: Path, call_id: str, name: str) -> Part:
    if is_compacted(state):
        return Part("result", path, (), call_id, name, "compacted", len(COMPACTED))
    output, attachments = state.get("output"), state.get("attachments")
    slots = (((*path, "state", "output"), output),) if isinstance(output, str) else ()
    size = sum(map(_media_chars, attachments)) if isinstance(attachments, list) else 0
    size += 0 if slots or output is None else len(_size(output))
    can_take_mark = isinstance(state.get("time", {}), dict)
    return Part("result", path, slots, call_id, name, "" if can_take_mark else _FIXED, size)


def is_compacted(state: dict[str, Any]) -> bool:
    """Whether an output is left out when the context is built."""
    time = state.get("time")
    return isinstance(time, dict) and bool(time.get("compacted"))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def violations(messages: Sequence[Message], pairs: Pairs) -> list[Violation]:
    """Items that are no session messages; a pair cannot break, for it is one part."""
    return [
        Violation(f"{NAME}.{mark}", index)
        for index, message in enumerate(messages)
        for mark in (_BAD_SHAPE, _NO_STATE)
        if mark in message.view.marks
    ]


def say(role: Role, text: str) -> Any:
    """A message of one synthetic text."""
    return {"info": {"role": role if role in ("system", "assistant") else "user"}, "parts": [text_part(text)]}


def text_part(text: str) -> Any:
    """A synthetic text, as the session itself writes them."""
    return {"type": "text", "text": text, "synthetic": True}


def put_result(part: Part, text: str) -> list[Change]:
    """The output of a completed part becomes another text; errors and compacted outputs stay as they are."""
    return [((*part.path, "state", "output"), text)] if part.state in ("", _FIXED) else []


def mark_compacted(part: Part, taken_at: int) -> list[Change]:
    """The output of a completed part is marked as left out of the context, and stays."""
    return [((*part.path, "state", "time", "compacted"), taken_at)] if part.state == "" else []


def latest_time(item: Any) -> int:
    """The latest start or end that a message tells, in milliseconds; 0 when it tells none."""
    if not isinstance(item, dict) or not _has_shape(item):
        return 0
    parts = [part for part in item["parts"] if isinstance(part, dict)]
    states = [part["state"] for part in parts if isinstance(part.get("state"), dict)]
    return max(moment for holder in (item["info"], *parts, *states) for moment in _moments(holder.get("time")))


def _moments(time: Any) -> list[int]:
    values = [time.get(key) for key in ("created", "completed", "start", "end")] if isinstance(time, dict) else []
    return [0, *(value for value in values if isinstance(value, int))]


def answer(calls: Sequence[Call], following: Message | None) -> tuple[list[Change], list[Any]]:
    """Nothing: a part that never ended says so itself."""
    return [], []


def tidy(messages: Sequence[Message], _: Pairs) -> dict[int, list[Change] | None]:
    """Nothing: a session stores what it likes."""
    return {}


OPENCODE: Final = Dialect(
    NAME,
    recognise,
    read,
    violations,
    say,
    put_result,
    ends_anywhere,
    places_behind_speaker,
    answer,
    tidy,
    text_part=text_part,
    mark_compacted=mark_compacted,
    latest_time=latest_time,
)

"""Strategies that draw conversations in every wire format: sound ones, and ones as odd as any log has held."""

from typing import Any, Final

from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from contracts import Policy, Snapshot, decode_snapshot
from pipeline import notices
from tests.pipeline.policies import POLICIES
from tests.pipeline.scripts import (
    FREEFORM_TOOL,
    PNG,
    REDACTED,
    Call,
    Compaction,
    Event,
    Item,
    Result,
    Round,
    Speech,
    Spelling,
    Token,
    render,
    spell,
)

FORMATS: Final = ("anthropic", "openai-chat", "openai-responses", "gemini", "opencode")
STARTS_WITH_USER: Final = frozenset({"anthropic", "gemini"})
MAX_MARKS: Final = 4

PROSE: Final = "The build fails in src/app.py at line 120: NameError, see tests/test_app.py for the case that shows it."
OUR_TEXTS: Final = (
    notices.CLEARED,
    notices.COMPACTED,
    notices.INTERRUPTED,
    notices.RESUMED,
    notices.PRUNED_PLAIN,
    notices.summarized_text(3),
    notices.pruned_text(["read", "bash"]),
    notices.collapsed_text(["read"], 7),
    notices.collapsed_text(["read", "bash"], 99_999),
    "head of it" + notices.TRUNCATED,
    "x" * 300 + notices.TRUNCATED,
    "start\n[... 1234 characters left out ...]\nend",
    f"He wrote: {notices.PRUNED_PLAIN} And: {notices.summarized_text(2)}",
)
CONTEXT: Final = (
    "<context>\n[1] The retry limit is set in config.py.\n\n[2] Bananas are rich in potassium.\n\n"
    "[3] config.py reads the retry limit from the environment.\n</context>\nWhere is the retry limit set?"
)
PLAIN_TEXTS: Final = (
    "ok",
    "Fix the failing test.",
    PROSE,
    f"{PROSE} " * 7 + PROSE,
    "直してください：テストが失敗します。" * 3,
    "done ✅ 👩‍👩‍👧‍👦 \U0001f9ea",
    'def f(x):\n    return {"a": [1, 2]}\n' * 6 + "f(1)",
    CONTEXT,
)
RESULT_TEXTS: Final = (
    "done",
    PROSE * 4,
    PROSE * 40,
    "\x1b[31mFAILED\x1b[0m tests/test_app.py::test_one - Error: not found\r\n" * 5,
    "結果は正常です。" * 40,
    "🧪" * 150,
    PNG * 20,
    "line\n" * 400,
    '{"rows": [1, 2, 3], "next": null}',
    "nul \x00 and \ufffd",
)
BLANK_TEXTS: Final = ("", " ", "\n\n")
TOOLS: Final = ("read", "bash", "skill", FREEFORM_TOOL)
ODD_TOOLS: Final = ("", "read, write.", "| Result summarized", "工具", "x" * 80)
ARGUMENTS: Final[tuple[Any, ...]] = (
    {},
    {"path": "src/app.py"},
    {"cmd": "pytest -q " + "x" * 400, "n": Token("1.50")},
    {"limit": Token("1e3"), "deep": {"list": [[], {}, None, True]}},
)
FIELDS: Final = (
    (),
    (),
    (("name", "agent-1"),),
    (("usage", {"input_tokens": Token("1.50"), "cost": Token("-0.0E+2")}), ("stop_reason", None)),
    (("x_huge", Token("1E400")), ("x_long", Token("123456789012345678901234567890"))),
)
SPELLINGS: Final = (
    Spelling(),
    Spelling(", ", ": "),
    Spelling(",\n  ", " : ", is_ascii=True, order="reversed"),
    Spelling(" , ", ":\t", order="sorted"),
)

_texts = st.sampled_from((*PLAIN_TEXTS, *OUR_TEXTS))
_reasoning = st.sampled_from(((), (), ("Let me look at the file first.",), ("", REDACTED), (PROSE * 3,)))


class Drawn(Struct, frozen=True):
    """A conversation as raw items; the last ``live`` of them are a step that still waits for results."""

    format: str
    items: tuple[bytes, ...]
    live: int

    @property
    def body(self) -> bytes:
        """The snapshot that an agent runner would publish."""
        head = b'{"conversation_id":"c","taken_at":1777581139000,"format":"' + self.format.encode() + b'","messages":['
        return head + b",".join(self.items) + b"]}"

    @property
    def snapshot(self) -> Snapshot:
        """The same, decoded."""
        return decode_snapshot(self.body)


def policies() -> st.SearchStrategy[tuple[str, Policy]]:
    """A policy by its name: presets, every strategy and option, harsh settings."""
    return st.sampled_from(sorted(POLICIES)).map(lambda name: (name, POLICIES[name]))


def results(is_odd: bool) -> st.SearchStrategy[Result]:
    """What a tool gives back."""
    texts = (*RESULT_TEXTS, *OUR_TEXTS, *(BLANK_TEXTS if is_odd else ()))
    contents: st.SearchStrategy[Any] = st.sampled_from(texts)
    contents |= st.lists(st.sampled_from(texts), min_size=1, max_size=3)
    if is_odd:
        contents |= st.sampled_from((None, [], {"ok": True, "n": Token("1.50")}, 7))
    return st.builds(Result, contents, st.sampled_from((False, False, True)), st.booleans())


def calls(is_odd: bool) -> st.SearchStrategy[Call]:
    """A tool call, sometimes without its result."""
    names = st.sampled_from((*TOOLS, *(ODD_TOOLS if is_odd else ())))
    arguments = st.sampled_from((*ARGUMENTS, *((None, "{broken", []) if is_odd else ())))
    answers = results(is_odd)
    return st.builds(Call, names, arguments, st.one_of(answers, answers, answers, st.none()))


def rounds(is_odd: bool) -> st.SearchStrategy[Round]:
    """One to four parallel calls with their results."""
    return st.builds(
        Round,
        st.lists(calls(is_odd), min_size=1, max_size=4).map(tuple),
        text=st.sampled_from(("", "", "I will look.", PROSE)),
        reasoning=_reasoning,
        follow=st.sampled_from(("", "", "", "And hurry.")),
        is_split=st.booleans(),
        fields=st.sampled_from(FIELDS),
    )


def speeches(is_odd: bool) -> st.SearchStrategy[Speech]:
    """Someone says something, with media, marks and blocks nobody knows."""
    texts = _texts | st.sampled_from(BLANK_TEXTS) if is_odd else _texts
    return st.builds(
        Speech,
        st.sampled_from(("user", "user", "assistant", "assistant", "system")),
        st.lists(texts, min_size=0 if is_odd else 1, max_size=2).map(tuple),
        has_media=st.sampled_from((False, False, True)),
        reasoning=_reasoning,
        is_list=st.booleans(),
        odd_block=st.sampled_from(("", "", "", "server tool", "unknown")),
        is_marked=st.sampled_from((False, False, True)),
        fields=st.sampled_from(FIELDS),
    ).map(_only_assistants_reason)


def _only_assistants_reason(speech: Speech) -> Speech:
    if speech.role == "assistant":
        return replace(speech, has_media=False)
    return replace(speech, reasoning=(), odd_block="" if speech.odd_block == "server tool" else speech.odd_block)


def events(is_odd: bool) -> st.SearchStrategy[list[Event]]:
    """A script, most of it tool rounds."""
    compactions = st.just(Compaction("The user asked for a fix; src/app.py was read."))
    one = st.one_of(rounds(is_odd), rounds(is_odd), speeches(is_odd), speeches(is_odd), rounds(is_odd) | compactions)
    return st.lists(one, max_size=9)


@st.composite
def valid_conversations(draw: st.DrawFn, format_name: str) -> Drawn:
    """A conversation that the provider accepts."""
    script = _with_ids(_sound(draw(events(is_odd=False)), format_name), draw(st.sampled_from(_id_styles(format_name))))
    groups = render(format_name, script)
    live = len(groups[-1]) if groups and isinstance(script[-1], Round) and script[-1].waits else 0
    items = [item for group in groups for item in group]
    spellings = draw(st.lists(st.sampled_from(SPELLINGS), min_size=1, max_size=3))
    return Drawn(format_name, _spelled(items, spellings), live)


@st.composite
def any_conversations(draw: st.DrawFn, format_name: str) -> Drawn:
    """A conversation with everything wrong that a log can hold."""
    script = _with_ids(draw(events(is_odd=True)), draw(st.sampled_from(ID_STYLES)))
    items = [item for group in render(format_name, script) for item in group]
    for kind, place in draw(st.lists(st.tuples(st.sampled_from(HARMS), st.integers(0, 30)), max_size=4)):
        harm(items, kind, place, format_name)
    spellings = draw(st.lists(st.sampled_from(SPELLINGS), min_size=1, max_size=3))
    return Drawn(format_name, _spelled(items, spellings), 0)


def _spelled(items: list[Item], spellings: list[Spelling]) -> tuple[bytes, ...]:
    return tuple(spell(item, spellings[i % len(spellings)]) for i, item in enumerate(items))


def _sound(script: list[Event], format_name: str) -> list[Event]:
    """The script without what this provider refuses."""
    script = [_settled(event) if i < len(script) - 1 else event for i, event in enumerate(script)]
    if format_name == "gemini":
        script = _alternating(script)
    if format_name == "opencode":
        script = [_with_texts_only(event) for event in script]
    first = next((e for e in script if not (isinstance(e, Speech) and e.role == "system")), None)
    if (
        format_name in STARTS_WITH_USER
        and first is not None
        and not (isinstance(first, Speech) and first.role == "user")
    ):
        script.insert(0, Speech("user", ("Please begin.",)))
    return _with_few_marks(script)


def _settled(event: Event) -> Event:
    if not isinstance(event, Round):
        return event
    calls = tuple(call if call.result is not None else replace(call, result=Result("done")) for call in event.calls)
    return replace(event, calls=calls)


def _alternating(script: list[Event]) -> list[Event]:
    """A user speaks between what the model says and its next call, and at the end."""
    between = Speech("user", ("Go on.",))
    spoken: list[Event] = []
    for event in script:
        if spoken and isinstance(spoken[-1], Speech) and spoken[-1].role == "assistant" and not _is_user(event):
            spoken.append(between)
        spoken.append(event)
    if spoken and isinstance(spoken[-1], Speech) and spoken[-1].role == "assistant":
        spoken.append(between)
    return spoken


def _is_user(event: Event) -> bool:
    return isinstance(event, Compaction) or (isinstance(event, Speech) and event.role != "assistant")


def _with_texts_only(event: Event) -> Event:
    if not isinstance(event, Round):
        return event
    return replace(event, calls=tuple(_with_text(call) for call in event.calls))


def _with_text(call: Call) -> Call:
    if call.result is None or isinstance(call.result.content, str):
        return call
    return replace(call, result=replace(call.result, content="\n".join(call.result.content)))


def _with_few_marks(script: list[Event]) -> list[Event]:
    left = MAX_MARKS
    sound: list[Event] = []
    for event in script:
        if isinstance(event, Speech) and event.is_marked:
            event = replace(event, is_marked=left > 0)
            left -= 1
        sound.append(event)
    return sound


ID_STYLES: Final = ("unique", "reused later", "same in a round", "same everywhere", "empty", "null", "illegal")


def _id_styles(format_name: str) -> tuple[str, ...]:
    if format_name == "anthropic":
        return ("unique",)
    return ("unique", "reused later", "empty") if format_name == "gemini" else ("unique", "reused later")


def _with_ids(script: list[Event], style: str) -> list[Event]:
    number = 0
    named: list[Event] = []
    for event in script:
        if isinstance(event, Round):
            calls = tuple(replace(c, id=_id(style, number + i, i, len(named))) for i, c in enumerate(event.calls))
            number += len(calls)
            event = replace(event, calls=calls)
        named.append(event)
    return named


def _id(style: str, number: int, within: int, round_number: int) -> str | None:
    return {
        "unique": f"call_{number}",
        "reused later": f"call_{within}",
        "same in a round": f"call_{round_number}",
        "same everywhere": "REDACTED",
        "empty": "",
        "null": None,
        "illegal": f"call:{number} ü",
    }[style]


HARMS: Final = ("drop", "repeat", "swap", "interrupt", "lone result", "lone call", "foreign", "blank")


def harm(items: list[Item], kind: str, place: int, format_name: str) -> None:
    """Do to an array what cuts, crashes and careless tools do."""
    at = place % (len(items) + 1)
    if kind == "drop":
        del items[at : at + 1]
    elif kind == "repeat":
        items[at:at] = items[at : at + 1]
    elif kind == "swap":
        items[at : at + 2] = items[at : at + 2][::-1]
    elif kind == "interrupt":
        items[at:at] = render(format_name, [Speech("assistant" if place % 2 else "user", ("Wait.",))])[0]
    elif kind in ("lone result", "lone call"):
        [pair] = render(format_name, [Round((Call("read", {}, Result("lost"), f"call_{place % 5}"),))])
        items[at:at] = pair[-1:] if kind == "lone result" else pair[:1]
    elif kind == "foreign":
        items.insert(at, FOREIGN_ITEMS[place % len(FOREIGN_ITEMS)])
    elif at < len(items) and isinstance(items[at], dict):
        items[at] = items[at] | BLANKS[place % len(BLANKS)]


BLANKS: Final[tuple[Any, ...]] = (
    {"content": None, "parts": None},
    {"content": "", "parts": []},
    {"content": [], "parts": [{}]},
    {"content": {"text": "an object"}, "parts": {}},
    {"content": ["bare", {"type": "text"}, None, 1], "parts": ["bare", None, {"text": None}]},
    {"role": None, "info": None, "type": None},
    {"tool_calls": [], "output": None},
    {"tool_calls": None, "arguments": None},
)
FOREIGN_ITEMS: Final[tuple[Any, ...]] = (
    "just a string",
    Token("1E400"),
    None,
    [],
    {},
    {"role": "critic", "content": "Hm."},
    {"type": "mystery_item", "data": {"n": Token("1.50"), "nested": [[[1]]]}},
    {"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "call_0", "content": "misplaced"}]},
    {"role": "user", "content": [{"type": "tool_use", "id": "call_1", "name": "read", "input": {}}]},
    {"role": "user", "content": [{"type": "text", "text": "first"}, {"type": "tool_result", "tool_use_id": "call_0"}]},
    {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": "{}"}},
    {"role": "tool", "tool_call_ids": ["call_0"], "content": ["x"]},
    {"role": "assistant", "tool_calls": [None, {"id": "call_9"}, {"function": {"arguments": {"a": 1}}}]},
    {"type": "item_reference", "id": "rs_1"},
    {"type": "reasoning", "id": "rs_99", "summary": []},
    {"type": "function_call_output", "output": "no id"},
    {"type": "mcp_call", "id": "mcp_1", "name": "ask", "arguments": "{}", "output": "both at once"},
    {"type": "local_shell_call", "call_id": "call_2", "action": {"command": ["ls"]}},
    {"role": "model", "parts": [{"functionCall": {"name": "read"}}, {"functionCall": None}]},
    {"role": "function", "parts": [{"functionResponse": {"name": "read", "response": "text"}}]},
    {
        "info": {"role": "assistant"},
        "parts": [{"type": "tool", "state": {"status": "completed"}}, {"type": "compaction"}],
    },
    {"info": {"role": "user", "summary": True}, "parts": []},
)

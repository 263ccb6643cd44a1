"""A simulated fleet: coding agents whose conversations grow turn by turn, the same for the same seed."""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from msgspec import Raw

from contracts import raw

FleetFormat = Literal["anthropic", "openai-chat"]
FORMATS: Final[tuple[FleetFormat, ...]] = ("anthropic", "openai-chat")

MAX_ROUNDS: Final = 40
PARALLEL_SHARE: Final = 0.25
ERROR_SHARE: Final = 0.08
TALK_SHARE: Final = 0.1

NOUNS: Final = ("invoice", "session", "ledger", "webhook", "tenant", "quota", "cursor", "batch", "token", "schedule")
VERBS: Final = ("load", "merge", "validate", "refresh", "expire", "rotate", "resolve", "collect", "retry", "publish")
AREAS: Final = ("billing", "auth", "storage", "gateway", "reports", "sync")
FAULTS: Final = ("KeyError", "TimeoutError", "ValueError", "IndexError", "PermissionError")


@dataclass(frozen=True)
class Call:
    """One tool call and the answer it got."""

    id: str
    tool: str
    arguments: dict[str, Any]
    answer: str
    is_error: bool = False


@dataclass(frozen=True)
class Step:
    """What one turn adds to a conversation, before it has a wire format: a prompt, a reply, or calls with answers."""

    speaker: Literal["user", "assistant"]
    text: str
    calls: tuple[Call, ...] = ()


@dataclass
class Agent:
    """One member of the fleet: its conversation so far, and where its next turn comes from."""

    conversation_id: str
    format: FleetFormat
    turns: Iterator[list[Raw]]
    messages: list[Raw] = field(default_factory=list)
    sequence: int = 0

    def take_turn(self) -> bool:
        """Let the conversation grow by one turn; False when it is over."""
        added = next(self.turns, None)
        if added is None:
            return False
        self.messages = [*self.messages, *added]
        self.sequence += 1
        return True


def start_agent(seed: int, number: int) -> Agent:
    """The fleet's agent of that number: odd and even ones speak different wire formats."""
    wire = FORMATS[number % len(FORMATS)]
    return Agent(f"agent-{seed}-{number}", wire, turns(seed, number, wire))


def turns(seed: int, number: int, wire: FleetFormat) -> Iterator[list[Raw]]:
    """What each turn of a conversation adds; after each, it is the model's turn to speak."""
    added: list[Raw] = []
    for step in steps(random.Random(f"{seed}/{number}")):
        added += [raw(message) for message in RENDERERS[wire](step)]
        if step.speaker == "user" or step.calls:
            yield added
            added = []


def steps(rng: random.Random) -> Iterator[Step]:
    """One agent's work: a task, rounds of tool use, now and then a word between the agent and its user."""
    yield Step("user", _task(rng))
    for number in range(rng.randint(MAX_ROUNDS // 2, MAX_ROUNDS)):
        if number and rng.random() < TALK_SHARE:
            yield Step("assistant", _report(rng))
            yield Step("user", _follow_up(rng))
        yield _round(rng, number)


def _round(rng: random.Random, number: int) -> Step:
    width = rng.randint(2, 4) if rng.random() < PARALLEL_SHARE else 1
    thought = _thought(rng) if rng.random() < 0.6 else ""
    return Step("assistant", thought, tuple(_call(rng, f"call_{number:03d}_{index}") for index in range(width)))


def _call(rng: random.Random, call_id: str) -> Call:
    tool = rng.choice(tuple(TOOLS))
    arguments, answer = TOOLS[tool](rng)
    if rng.random() < ERROR_SHARE:
        return Call(call_id, tool, arguments, _tool_error(rng, tool), is_error=True)
    return Call(call_id, tool, arguments, answer)


def _anthropic(step: Step) -> list[dict[str, Any]]:
    if not step.calls:
        return [{"role": step.speaker, "content": step.text}]
    text = [{"type": "text", "text": step.text}] if step.text else []
    uses = [{"type": "tool_use", "id": call.id, "name": call.tool, "input": call.arguments} for call in step.calls]
    return [
        {"role": "assistant", "content": text + uses},
        {"role": "user", "content": [_anthropic_result(call) for call in step.calls]},
    ]


def _anthropic_result(call: Call) -> dict[str, Any]:
    result = {"type": "tool_result", "tool_use_id": call.id, "content": call.answer}
    return result | {"is_error": True} if call.is_error else result


def _openai_chat(step: Step) -> list[dict[str, Any]]:
    if not step.calls:
        return [{"role": step.speaker, "content": step.text}]
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": json.dumps(call.arguments)}}
        for call in step.calls
    ]
    results = [{"role": "tool", "tool_call_id": call.id, "content": call.answer} for call in step.calls]
    return [{"role": "assistant", "content": step.text or None, "tool_calls": calls}, *results]


RENDERERS: Final[dict[FleetFormat, Callable[[Step], list[dict[str, Any]]]]] = {
    "anthropic": _anthropic,
    "openai-chat": _openai_chat,
}


def _read_file(rng: random.Random) -> tuple[dict[str, Any], str]:
    path = _path(rng)
    source = "\n".join(_function(rng) for _ in range(rng.randint(2, 40)))
    return {"path": path}, "\n".join(f"{number:5d}  {line}" for number, line in enumerate(source.splitlines(), 1))


def _search(rng: random.Random) -> tuple[dict[str, Any], str]:
    name = _name(rng)
    hits = (f"{_path(rng)}:{rng.randint(3, 900)}:    {_statement(rng, name)}" for _ in range(rng.randint(0, 60)))
    return {"pattern": name, "path": "src"}, "\n".join(hits) or "No matches found."


def _run_tests(rng: random.Random) -> tuple[dict[str, Any], str]:
    path = f"tests/test_{rng.choice(NOUNS)}.py"
    lines = [f"{path}::test_{_name(rng)} {'PASSED' if rng.random() < 0.9 else 'FAILED'}" for _ in range(30)]
    failures = [_traceback(rng) for _ in range(sum(line.endswith("FAILED") for line in lines))]
    closing = f"{len(failures)} failed, {30 - len(failures)} passed in {rng.uniform(0.4, 9):.2f}s"
    return {"command": f"pytest -v {path}"}, "\n".join([*lines, *failures, closing])


def _edit_file(rng: random.Random) -> tuple[dict[str, Any], str]:
    path, name = _path(rng), _name(rng)
    arguments = {"path": path, "old": _statement(rng, name), "new": _function(rng)}
    return arguments, f"Edited {path}: 1 replacement."


def _list_directory(rng: random.Random) -> tuple[dict[str, Any], str]:
    names = sorted({_path(rng) for _ in range(rng.randint(5, 40))})
    return {"path": "src"}, "\n".join(f"{rng.randint(200, 40_000):8d}  {name}" for name in names)


TOOLS: Final[dict[str, Callable[[random.Random], tuple[dict[str, Any], str]]]] = {
    "read_file": _read_file,
    "search": _search,
    "run_tests": _run_tests,
    "edit_file": _edit_file,
    "list_directory": _list_directory,
}


def _name(rng: random.Random) -> str:
    return f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"


def _path(rng: random.Random) -> str:
    return f"src/{rng.choice(AREAS)}/{rng.choice(NOUNS)}_{rng.choice(('store', 'api', 'job', 'model'))}.py"


def _statement(rng: random.Random, name: str) -> str:
    noun = rng.choice(NOUNS)
    return rng.choice(
        (
            f"{noun} = {name}({noun}_id, limit={rng.randint(1, 500)})",
            f'log.info("{name} done", {noun}={noun}.id, took_ms={rng.randint(1, 900)})',
            f"if not {noun}.is_open: raise {rng.choice(FAULTS)}({noun}.id)",
            f"return [{name}(item) for item in {noun}.items if item.age_days < {rng.randint(1, 90)}]",
        )
    )


def _function(rng: random.Random) -> str:
    name, noun = _name(rng), rng.choice(NOUNS)
    body = "\n".join(f"    {_statement(rng, _name(rng))}" for _ in range(rng.randint(2, 6)))
    return f'def {name}({noun}_id: str) -> None:\n    """Called by the {rng.choice(AREAS)} service."""\n{body}\n'


def _traceback(rng: random.Random) -> str:
    frames = (f'  File "{_path(rng)}", line {rng.randint(5, 700)}, in {_name(rng)}' for _ in range(rng.randint(2, 8)))
    fault = f"{rng.choice(FAULTS)}: {rng.choice(NOUNS)} {rng.randint(1, 99)}"
    return "\n".join(["Traceback (most recent call last):", *frames, fault])


def _tool_error(rng: random.Random, tool: str) -> str:
    return rng.choice((f"{tool}: no such file: {_path(rng)}", f"{tool}: timed out after 30 s", _traceback(rng)))


def _task(rng: random.Random) -> str:
    return (
        f"In the {rng.choice(AREAS)} service `{_name(rng)}` raises {rng.choice(FAULTS)} when a {rng.choice(NOUNS)} is "
        f"older than {rng.randint(2, 60)} days. Find the cause, fix it and add a test. Keep `{_path(rng)}` as it is."
    )


def _thought(rng: random.Random) -> str:
    return (
        f"`{_name(rng)}` is called from {_path(rng)}, so the {rng.choice(NOUNS)} may be stale there. "
        f"I will check how {rng.choice(AREAS)} handles it before I change anything."
    )


def _report(rng: random.Random) -> str:
    return (
        f"The {rng.choice(FAULTS)} comes from `{_name(rng)}`: it reads the {rng.choice(NOUNS)} before "
        f"`{_name(rng)}` has written it. I changed {_path(rng)} and the test passes now."
    )


def _follow_up(rng: random.Random) -> str:
    return f"Good. Please do the same for `{_name(rng)}` in {_path(rng)}, and run the {rng.choice(NOUNS)} tests again."

"""Peers: other pruners, run for real from PyPI in an environment of their own, on the same replay."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw
from rich.console import Console

from benchmarks import replay
from benchmarks.replay import Job, Pruner, Request, Tally, leave_alone
from benchmarks.stored import DEFAULT_CORPUS
from contracts import Cut, Snapshot
from pipeline.conversation import Conversation, read_conversation
from pipeline.splice import DELETE, Change, splice
from pipeline.tokens import counter
from pipeline.view import Part

Convert = Callable[[list[Any], Callable[[list[Any]], int]], list[Any]]

os.environ.setdefault("HEADROOM_OFFLINE", "1")
PACKAGES: Final = {
    "langchain trim_messages": "langchain-core",
    "langchain ClearToolUsesEdit": "langchain",
    "headroom compress": "headroom-ai",
}
KEPT_RESULTS: Final = 3  # ClearToolUsesEdit's own default
GROUP: Final = "anthropic and chat"


def peers(budget: int) -> dict[str, Pruner]:
    """Every peer that can be imported here, with the budget as its limit; none of them first, as the reference."""
    made: dict[str, Pruner] = {"none": leave_alone}
    for name, build in BUILDERS.items():
        try:
            made[name] = build(budget)
        except ImportError:
            continue
    return made


def trim(budget: int) -> Pruner:
    """LangChain's window by tokens; it may begin with an answer, or a run of one prompt would come back empty."""
    from langchain_core.messages import trim_messages

    def convert(messages: list[Any], count: Callable[[list[Any]], int]) -> list[Any]:
        found: list[Any] = trim_messages(
            messages,
            max_tokens=budget,
            token_counter=count,
            strategy="last",
            include_system=True,
            start_on=("human", "ai"),
        )
        return found

    return through_langchain(convert)


def clear(budget: int) -> Pruner:
    """LangChain's middleware that clears old tool results once the budget is passed."""
    from langchain.agents.middleware import ClearToolUsesEdit

    def convert(messages: list[Any], count: Callable[[list[Any]], int]) -> list[Any]:
        edited = [message.model_copy(deep=True) for message in messages]
        ClearToolUsesEdit(trigger=budget, keep=KEPT_RESULTS).apply(edited, count_tokens=count)
        return edited

    return through_langchain(convert)


def headroom(budget: int) -> Pruner:
    """Headroom's library call; it has no budget, only a model's limit."""
    from headroom import compress

    def run(snapshot: Snapshot, cuts: list[Cut]) -> Request:
        plain = [msgspec.json.decode(item) for item in snapshot.messages]
        model = "gpt-4o" if snapshot.format == "openai-chat" else "claude-sonnet-4-5-20250929"
        result = compress(plain, model=model, model_limit=budget)
        before = [msgspec.json.encode(item) for item in plain]
        # What it left alone is counted as it came.
        made = [msgspec.json.encode(item) for item in result.messages]
        known = dict(zip(before, snapshot.messages, strict=True))
        return Request([known.get(item, Raw(item)) for item in made])

    return run


BUILDERS: Final[dict[str, Callable[[int], Pruner]]] = {
    "langchain trim_messages": trim,
    "langchain ClearToolUsesEdit": clear,
    "headroom compress": headroom,
}


def through_langchain(convert: Convert) -> Pruner:
    """A pruner that speaks LangChain's messages: there and back, sizes by our counter so that all obey one budget."""

    def run(snapshot: Snapshot, cuts: list[Cut]) -> Request:
        conversation = read_conversation(snapshot.messages, snapshot.format, counter("estimate"))
        messages, sizes = to_langchain(conversation)

        def count(some: Sequence[Any]) -> int:
            return sum(
                sizes[message.id] if _is_same(message, texts) else counter("estimate")(message.content)
                for message in some
            )

        texts = {message.id: message.content for message in messages}
        kept = convert(messages, count)
        return Request(from_langchain(conversation, kept, texts))

    return run


def _is_same(message: Any, texts: dict[str, str]) -> bool:
    return bool(texts.get(message.id) == message.content)


def to_langchain(conversation: Conversation) -> tuple[list[Any], dict[str, int]]:
    """LangChain's messages, one for each tool result, with our sizes by id."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    made: list[Any] = []
    sizes: dict[str, int] = {}
    for index, message in enumerate(conversation.messages):
        results = message.of_kind("result")
        others = [part for part in message.parts if part.kind != "result"]
        for number, part in enumerate(results):
            made.append(ToolMessage(part.text, tool_call_id=part.id, id=f"{index}:{number}"))
            sizes[f"{index}:{number}"] = message.tokens // len(results)
        if results and not others:
            continue
        text = "\n".join(part.text for part in others if part.kind == "text")
        kind = {"assistant": AIMessage, "system": SystemMessage}.get(message.role, HumanMessage)
        calls = [{"name": p.name, "args": {}, "id": p.id} for p in others if p.kind == "call"]
        made.append(kind(text, id=str(index), **({"tool_calls": calls} if calls else {})))
        sizes[str(index)] = 0 if results else message.tokens
    return made, sizes


def from_langchain(conversation: Conversation, kept: list[Any], texts: dict[str, str]) -> list[Raw]:
    """The items again: untouched ones as they came, cleared results cleared, missing ones left out."""
    present = {message.id: message.content for message in kept}
    items: list[Raw] = []
    for index, message in enumerate(conversation.messages):
        results = message.of_kind("result")
        if not results:
            if str(index) in present:
                items.append(message.raw)
            continue
        changes = [
            change for n, part in enumerate(results) for change in _change(conversation, index, n, part, present, texts)
        ]
        gone = sum(f"{index}:{number}" not in present for number in range(len(results)))
        if gone < len(results):
            items.append(splice(message.raw, changes) if changes else message.raw)
    return items


def _change(
    conversation: Conversation, index: int, number: int, part: Part, present: dict[str, str], texts: dict[str, str]
) -> list[Change]:
    key = f"{index}:{number}"
    if key not in present:
        return [(part.path, DELETE)] if part.path else []
    if present[key] == texts[key]:
        return []
    return conversation.dialect.put_result(part, present[key])


def missing() -> dict[str, str]:
    """The peers that cannot be run here, and why."""
    reasons = {}
    for name, build in BUILDERS.items():
        try:
            build(1)
        except ImportError as error:
            reasons[name] = f"not run: {type(error).__name__}: {PACKAGES[name]} cannot be imported"
    return reasons


def versions() -> dict[str, str]:
    """Which versions were run."""
    found = {}
    for package in PACKAGES.values():
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def run_job(job: Job) -> tuple[Job, dict[str, Tally]]:
    """One conversation under every peer; replay's own pool calls it in a fresh process."""
    replay.PRUNERS = peers
    return replay.run_job(job)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay the peers on the conversations that `make bench` takes, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=DEFAULT_CORPUS)
    parser.add_argument("--limit", type=int, default=0, help="conversations a budget; 0: all")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else replay.PLAIN_WIDTH)
    jobs = [job for job in replay.choose(options.corpus, replay.BUDGETS, "report", options.limit) if job.group == GROUP]
    rows = replay.report(replay.run(jobs, options.processes, console, run_job), "report")
    replay.show(rows, console)
    absent = missing()
    for name, reason in absent.items():
        console.print(f"{name}: {reason}")
    found = {"limit": options.limit, "versions": versions(), "missing": absent, "rows": rows}
    replay.PEERS.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

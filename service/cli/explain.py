"""A pruned conversation as people read it: what stood there, what happened to it, what stands there now."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Raw
from rich.console import Console
from rich.table import Table
from rich.text import Text

from contracts import Edit, Pruned, Snapshot
from pipeline import count_after
from pipeline.conversation import parse
from pipeline.dialects import find_dialect
from pipeline.view import Part
from service.cli.output import plain

GIST_CHARS: Final = 60

Row = tuple[str, str, str, str]


def print_explanation(snapshot: Snapshot, result: Pruned) -> None:
    """The summary and the table to standard output, as wide as the terminal."""
    console = Console(highlight=False)
    console.print(Text(headline(result, len(snapshot.messages))), soft_wrap=True)
    if result.edits:
        console.print(edit_table(snapshot.messages, result))


def headline(result: Pruned, messages_before: int) -> str:
    """One line: the conversation, what came of it, and how much smaller it is."""
    messages_after = count_after(messages_before, result.edits)
    reasons = f" ({', '.join(result.reason)})" if result.reason else ""
    return (
        f"{plain(result.conversation_id)}: {result.status}{reasons}, "
        f"messages {messages_before} -> {messages_after}, "
        f"tokens {result.tokens.before:,} -> {result.tokens.after:,} ({result.tokens.method}), "
        f"policy {result.policy.name}"
    )


def edit_table(messages: Sequence[Raw], result: Pruned) -> Table:
    """Every edited position before and after; runs of untouched messages are one row."""
    table = Table("#", "before", "what happened", "after")
    for row in _rows(messages, result):
        table.add_row(*(Text(cell) for cell in row))
    return table


def gist(item: Raw, wire: str) -> str:
    """Who speaks and the start of what is said, in one short line."""
    view = find_dialect(wire, ()).read(parse(item))
    said = plain(" + ".join(_part_gist(part) for part in view.parts)).strip()
    short = said if len(said) <= GIST_CHARS else said[: GIST_CHARS - 1] + "…"
    return f"{view.role}: {short}" if short else view.role


def _rows(messages: Sequence[Raw], result: Pruned) -> Iterator[Row]:
    changed, added = _by_position(result.edits)
    untouched: list[int] = []
    for position in range(len(messages) + 1):
        if position not in changed and position not in added:
            untouched.append(position)
            continue
        yield from _untouched_row(untouched, messages, result.format)
        untouched = []
        for edit in added.get(position, ()):
            yield "+", "", _what(edit), _after(edit, result.format)
        if position in changed:
            yield _changed_row(messages[position], changed[position], result.format)
        elif position < len(messages):
            untouched.append(position)
    yield from _untouched_row([position for position in untouched if position < len(messages)], messages, result.format)


def _by_position(edits: Sequence[Edit]) -> tuple[dict[int, list[Edit]], dict[int, list[Edit]]]:
    changed: dict[int, list[Edit]] = defaultdict(list)
    added: dict[int, list[Edit]] = defaultdict(list)
    for edit in edits:
        (added if edit.op == "insert" else changed)[edit.position].append(edit)
    return changed, added


def _untouched_row(positions: Sequence[int], messages: Sequence[Raw], wire: str) -> Iterator[Row]:
    if len(positions) == 1:
        yield str(positions[0]), gist(messages[positions[0]], wire), "", "the same"
    elif positions:
        yield f"{positions[0]}–{positions[-1]}", f"{len(positions)} messages", "", "the same"


def _changed_row(original: Raw, edits: Sequence[Edit], wire: str) -> Row:
    what = ", then ".join(_what(edit) for edit in edits)
    return str(edits[0].position), gist(original, wire), what, _after(edits[-1], wire)


def _what(edit: Edit) -> str:
    return f"{edit.stage}: {edit.reason}, {edit.tokens_before:,} -> {edit.tokens_after:,} tokens"


def _after(edit: Edit, wire: str) -> str:
    return gist(edit.item, wire) if isinstance(edit.item, Raw) else "—"


def _part_gist(part: Part) -> str:
    if part.kind == "text":
        return part.text[: GIST_CHARS * 2]
    if part.kind == "call":
        return f"calls {part.name}"
    if part.kind == "result":
        return f"result {part.text[: GIST_CHARS * 2]}"
    return part.kind

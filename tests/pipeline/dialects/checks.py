"""What every wire format's tests ask: which rules are broken, what repair makes of it, what a rewrite leaves alone."""

from collections import Counter
from typing import Any

import msgspec
from msgspec import Raw

from contracts import Pruned, Snapshot, load_policy, raw
from pipeline import prune
from pipeline.conversation import Conversation, read_conversation
from pipeline.splice import splice
from pipeline.tokens import counter
from pipeline.view import Part

Item = Any


def raws(items: list[Item]) -> list[Raw]:
    return [item if isinstance(item, Raw) else raw(item) for item in items]


def read(items: list[Item], format_name: str) -> Conversation:
    return read_conversation(raws(items), format_name, counter("estimate"))


def parts(item: Item, format_name: str) -> list[Part]:
    return list(read([item], format_name).messages[0].parts)


def rules(items: list[Item], format_name: str) -> list[str]:
    """The broken rules, each as often as it is broken, without the format's name."""
    conversation = read(items, format_name)
    found = conversation.dialect.violations(conversation.messages, conversation.pairs)
    return sorted(violation.rule.removeprefix(f"{format_name}.") for violation in found)


def run(items: list[Item], format_name: Any, policy: dict[str, Any] | None = None) -> Pruned:
    return prune(Snapshot("c", raws(items), format=format_name), load_policy(policy or {}))


def plain(pruned: Pruned) -> list[Item]:
    assert isinstance(pruned.messages, list)
    return [msgspec.json.decode(item) for item in pruned.messages]


def repaired(items: list[Item], format_name: str) -> list[Item]:
    """What the empty policy publishes: it breaks no rule more often than what came; a second run leaves it."""
    published = plain(run(items, format_name))

    assert Counter(rules(published, format_name)) <= Counter(rules(items, format_name))
    assert plain(run(published, format_name)) == published
    return published


def rewritten(item: Item, format_name: str, text: str) -> Item:
    """An item after each of its results was given another content."""
    dialect = read([item], format_name).dialect
    changes = [
        change
        for part in parts(item, format_name)
        if part.kind == "result"
        for change in dialect.put_result(part, text)
    ]
    return msgspec.json.decode(splice(raws([item])[0], changes))


def relettered(item: Item, format_name: str) -> Item:
    """An item after every text that an edit may rewrite was replaced by its place."""
    slots = [path for part in parts(item, format_name) if part.kind == "result" for path, _ in part.slots]
    changes = [(path, ".".join(str(step) for step in path)) for path in slots]
    return msgspec.json.decode(splice(raws([item])[0], changes))

"""Conversation: a message whose texts were changed is what reading it again would give, in every format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from pipeline.conversation import Conversation, read_conversation
from pipeline.splice import splice
from pipeline.tokens import counter
from pipeline.view import REWRITABLE, Path
from tests.pipeline.generators import FORMATS, Drawn, any_conversations

TEXTS = st.sampled_from(["x", " \n", "[truncated]", '{"a": "b"}', 'quote " and \\ and \u2028', "\u00fc\U0001f9ea" * 30])


def slots(conversation: Conversation) -> list[tuple[int, Path]]:
    return [
        (index, path)
        for index, message in enumerate(conversation.messages)
        for part in message.parts
        if part.kind in REWRITABLE
        for path, _ in part.slots
    ]


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_retold_message_is_the_one_that_would_be_read(format_name: str) -> None:
    retold = 0

    @given(any_conversations(format_name), TEXTS, TEXTS)
    def holds(drawn: Drawn, one: str, two: str) -> None:
        nonlocal retold
        conversation = read_conversation(drawn.snapshot.messages, format_name, counter("estimate"))
        by_message: dict[int, list[Path]] = {}
        for index, path in slots(conversation):
            by_message.setdefault(index, []).append(path)
        for index, paths in by_message.items():
            message = conversation.messages[index]
            changes = list(zip(paths, (one, two), strict=False))
            item = splice(message.raw, changes)
            new = conversation.retell(message, item, changes)
            if new is not None:
                retold += 1
                assert new == conversation.read(item, message.position)

    holds()
    assert retold


def test_what_is_no_text_of_the_view_is_read_again() -> None:
    call = b'{"type":"tool_use","id":"t","name":"n","input":{"a":1}}'
    item = b'{"role":"assistant","content":[' + call + b',{"type":"text","text":"x"}]}'

    conversation = read_conversation([Raw(item)], "anthropic", counter("estimate"))
    message = conversation.messages[0]

    for changes in (
        [(("content", 0, "input"), "{}")],
        [(("content", 1, "text"), "")],
        [(("content", 1, "text"), "y"), (("content", 0, "id"), "u")],
        [(("content", 1), {"type": "text", "text": "y"})],
    ):
        assert conversation.retell(message, splice(message.raw, changes), changes) is None

"""The functions that the seeds name: each stage alone, on a plain array."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Raw

from contracts import Code, Policy, Refused, raw
from contracts.policy import Collapse, Compress, Pruning
from pipeline.conversation import read_conversation
from pipeline.dialects import Violation
from pipeline.run import Stage
from pipeline.shorten import CHARS_PER_TOKEN
from pipeline.splice import splice
from pipeline.stages.collapse import collapse
from pipeline.stages.compress import shorten_result
from pipeline.stages.prune import prune
from pipeline.tokens import chars_over_four
from pipeline.view import Part

# The messages in which a block can stand, and how deep: it may be a message itself.
_HOLDERS: Final[tuple[tuple[int, Callable[[Raw], Any]], ...]] = (
    (0, lambda block: block),
    (2, lambda block: {"role": "user", "content": [block]}),
    (2, lambda block: {"role": "user", "parts": [block]}),
    (2, lambda block: {"info": {"role": "assistant"}, "parts": [block]}),
)


def _run(stage: Stage, messages: Sequence[Raw], policy: Policy, format: str) -> list[Raw]:
    conversation = read_conversation(messages, format, chars_over_four)
    return [message.raw for message in stage(conversation, policy).conversation.messages]


def find_tool_results_for_call(messages: Sequence[Raw], call_id: str, format: str = "auto") -> list[int]:
    """The positions of the messages that hold a result for that call id."""
    found = read_conversation(messages, format, chars_over_four).messages
    return [m.position for m in found if any(p.kind == "result" and p.id == call_id for p in m.parts)]


def validate_message_sequence(messages: Sequence[Raw], format: str = "auto") -> list[Violation]:
    """Every provider rule that the array breaks; empty when it is valid."""
    conversation = read_conversation(messages, format, chars_over_four)
    return conversation.dialect.violations(conversation.messages, conversation.pairs)


def compress_tool_result(block: Raw, config: Compress, format: str = "auto") -> Raw:
    """A tool result capped, its link to the call untouched: a content block, or the item that is the result."""
    if config.max_tool_result_tokens is None:
        return block
    limit = config.max_tool_result_tokens * CHARS_PER_TOKEN
    for depth, hold in _HOLDERS:
        if results := _results(raw(hold(block)), format):
            changes = [change for part in results for change in shorten_result(part, limit, config.shape)]
            return splice(block, [(path[depth:], text) for path, text in changes])
    return block


def _results(message: Raw, format: str) -> list[Part]:
    """The results in a message that may be cut; none when it is of no format."""
    try:
        found = read_conversation([message], format, chars_over_four).messages[0]
    except Refused as error:
        if format != "auto" or error.code != Code.UNKNOWN_FORMAT:
            raise
        return []
    return [part for part in found.of_kind("result") if part.state in ("", "error")]


def collapse_tool_chains(messages: Sequence[Raw], config: Collapse, format: str = "auto") -> list[Raw]:
    """The array with its old tool rounds collapsed."""
    return _run(collapse, messages, Policy(collapse=config), format)


def prune_messages(messages: Sequence[Raw], config: Pruning, format: str = "auto") -> list[Raw]:
    """The array with what the strategy removes gone."""
    return _run(prune, messages, Policy(prune=config), format)

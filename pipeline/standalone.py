"""The functions that the seeds name: each stage alone, on a plain array."""

from collections.abc import Sequence

from msgspec import Raw

from contracts import Policy
from contracts.policy import Collapse, Compress, Prune
from pipeline.conversation import read_conversation
from pipeline.dialects import Violation
from pipeline.run import Stage
from pipeline.stages.collapse import collapse
from pipeline.stages.compress import compress
from pipeline.stages.prune import prune
from pipeline.tokens import chars_over_four


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


def compress_tool_result(message: Raw, config: Compress, format: str = "auto") -> Raw:
    """One message with its tool results capped."""
    return _run(compress, [message], Policy(compress=config), format)[0]


def collapse_tool_chains(messages: Sequence[Raw], config: Collapse, format: str = "auto") -> list[Raw]:
    """The array with its old tool rounds collapsed."""
    return _run(collapse, messages, Policy(collapse=config), format)


def prune_messages(messages: Sequence[Raw], config: Prune, format: str = "auto") -> list[Raw]:
    """The array with what the strategy removes gone."""
    return _run(prune, messages, Policy(prune=config), format)

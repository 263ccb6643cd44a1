"""Every text we write into a conversation, and how to know it again: that is what makes pruning idempotent."""

import re
from collections.abc import Iterable
from typing import Final

from pipeline.view import Message

TRUNCATED: Final = "\n[truncated]"
CLEARED: Final = "[Old tool result cleared to save context; run the tool again if you need it]"
COMPACTED: Final = "[compacted]"
INTERRUPTED: Final = "[Tool execution was interrupted; no result]"
RESUMED: Final = "[The conversation continues from an earlier point]"
STUBS: Final = frozenset({CLEARED, COMPACTED, INTERRUPTED})  # results of our own writing: never shortened further

SUMMARIZED: Final = re.compile(r"\[Previous context summarized: (\d+) turns\]")
PRUNED_PLAIN: Final = "Earlier messages have been pruned to manage token usage."
PRUNED_TOOLS: Final = re.compile(r"Earlier messages have been pruned\. Tool operations included: (.*)\.", re.DOTALL)
_COLLAPSED: Final = re.compile(r"\[Tool: .* \| Result summarized — called \d+ turns ago\]", re.DOTALL)


def collapsed_text(names: Iterable[str], turns_ago: int) -> str:
    """What stands for an old tool round, a line a call."""
    return "\n".join(f"[Tool: {name} | Result summarized — called {turns_ago} turns ago]" for name in names)


def summarized_text(turns: int) -> str:
    """What stands for everything older than the window."""
    return f"[Previous context summarized: {turns} turns]"


def pruned_text(tools: Iterable[str]) -> str:
    """What stands for removed messages: the tools they used, each named once."""
    names = ", ".join(dict.fromkeys(tools))
    return f"Earlier messages have been pruned. Tool operations included: {names}." if names else PRUNED_PLAIN


def is_collapsed(text: str) -> bool:
    """Whether a text stands for a collapsed round."""
    return bool(_COLLAPSED.fullmatch(text))


def notice_text(message: Message) -> str:
    """The text of a message that holds nothing but a notice of ours, else the empty string."""
    parts = message.view.parts
    if len(parts) != 1 or parts[0].kind != "text" or message.view.role not in ("user", "system"):
        return ""
    text = parts[0].text
    is_ours = text in (PRUNED_PLAIN, RESUMED) or SUMMARIZED.fullmatch(text) or PRUNED_TOOLS.fullmatch(text)
    return text if is_ours else ""


def summarized_turns(text: str) -> int:
    """How many turns an earlier notice stood for."""
    found = SUMMARIZED.fullmatch(text)
    return int(found.group(1)) if found else 0


def pruned_tools(text: str) -> list[str]:
    """The tools that an earlier notice named."""
    found = PRUNED_TOOLS.fullmatch(text)
    return found.group(1).split(", ") if found else []

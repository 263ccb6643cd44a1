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
STUBS: Final = (CLEARED, COMPACTED, INTERRUPTED)  # results of our own writing; compared, for hashing reads long texts

SUMMARIZED: Final = re.compile(r"\[Previous context summarized: (\d+) turns\]")
PRUNED_PLAIN: Final = "Earlier messages have been pruned to manage token usage."
PRUNED_TOOLS: Final = re.compile(r"Earlier messages have been pruned\. Tool operations included: (.*)\.", re.DOTALL)
_STEPS: Final = re.compile(
    r"\[(\d+) earlier messages were pruned to save context\."
    r"(?: Tools used: ([^\n]*)\.)?(?:\nNames in them: ([^\n]*))?\]"
)
_CONDENSED: Final = re.compile(r"\[Condensed from \d+ characters\]")
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


def steps_text(messages: int, tools: Iterable[str], names: Iterable[str]) -> str:
    """What stands for the rounds that `steady` dropped: how many messages, their tools, and names found in them."""
    used, found = ", ".join(dict.fromkeys(tools)), ", ".join(names)
    tools_text = f" Tools used: {used}." if used else ""
    names_text = f"\nNames in them: {found}" if found else ""
    return f"[{messages} earlier messages were pruned to save context.{tools_text}{names_text}]"


def pruned_steps(text: str) -> tuple[int, list[str], list[str]]:
    """What an earlier notice of `steady` said: messages, tools and names."""
    found = _STEPS.fullmatch(text)
    if found is None:
        return 0, [], []
    tools, names = found.group(2) or "", found.group(3) or ""
    return int(found.group(1)), tools.split(", ") if tools else [], names.split(", ") if names else []


def condensed_text(chars: int, lines: Iterable[str], names: Iterable[str]) -> str:
    """What stays of an old result: its telling lines, then other names in it."""
    found = ", ".join(names)
    also = [f"[also in it: {found}]"] if found else []
    return "\n".join([f"[Condensed from {chars} characters]", *lines, *also])


def is_condensed(text: str) -> bool:
    """Whether a result was condensed before."""
    return bool(_CONDENSED.match(text))


def is_collapsed(text: str) -> bool:
    """Whether a text stands for a collapsed round."""
    return bool(_COLLAPSED.fullmatch(text))


def notice_text(message: Message) -> str:
    """The text of a message that holds nothing but a notice of ours, else the empty string."""
    parts = message.view.parts
    if len(parts) != 1 or parts[0].kind != "text" or message.view.role not in ("user", "system"):
        return ""
    text = parts[0].text
    if not text.startswith(("[", "Earlier messages")):
        return ""
    patterns = (SUMMARIZED, PRUNED_TOOLS, _STEPS)
    is_ours = text in (PRUNED_PLAIN, RESUMED) or any(pattern.fullmatch(text) for pattern in patterns)
    return text if is_ours else ""


def summarized_turns(text: str) -> int:
    """How many turns an earlier notice stood for."""
    found = SUMMARIZED.fullmatch(text)
    return int(found.group(1)) if found else 0


def pruned_tools(text: str) -> list[str]:
    """The tools that an earlier notice named."""
    found = PRUNED_TOOLS.fullmatch(text)
    return found.group(1).split(", ") if found else []

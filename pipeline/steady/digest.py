"""Digest: the one notice that stands for what was dropped."""

from collections.abc import Iterable
from typing import Final

from contracts import raw
from pipeline.conversation import Conversation
from pipeline.notices import pruned_steps, pruned_tools, steps_text, summarized_turns
from pipeline.steady.evidence import Evidence, fit_names, rank_names

CHARS_PER_TOKEN: Final = 3.4  # of a list of names
CHARS_PER_NAME: Final = 20  # with a comma, on average
FEWEST_NAMES: Final = 1_000  # that are remembered, however little room there is


class Digest:
    """The one notice that stands for what was dropped; it is written anew only when a cut drops more."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._messages = 0
        self._tools: dict[str, None] = {}
        self._names: dict[str, None] = {}
        self._removed = 0  # tokens
        self._is_due = False
        self.text = ""
        self.tokens = 0

    def add(self, messages: int, tools: Iterable[str], tokens: int) -> None:
        """Count what was dropped."""
        self._messages += messages
        self._tools.update((" ".join(name.split()), None) for name in tools if name.strip())
        self._removed += tokens // 2  # a notice takes no more than half of what it stands for
        self._is_due = True

    def merge(self, text: str, tokens: int) -> None:
        """Take over what an earlier notice said."""
        messages, tools, names = pruned_steps(text)
        self.add(messages + summarized_turns(text), [*tools, *pruned_tools(text)], 2 * tokens)
        self.learn(names)

    def learn(self, names: Iterable[str]) -> None:
        """Names that stood in what was dropped."""
        self._names.update(dict.fromkeys(names))

    def room(self, most: int) -> int:
        """Tokens that the notice may take."""
        return min(most, self._removed) if self._is_due else self.tokens

    def write(self, room: int, evidence: Evidence) -> bool:
        """Write the notice within so many tokens; whether it changed."""
        if not self._is_due:
            return False
        self._is_due = False
        missing = [name for name in self._remember(room, evidence) if evidence.present[name] <= 0]
        self.text, self.tokens = "", 0
        names_room = int(room * CHARS_PER_TOKEN)
        tools: Iterable[str] = self._tools
        while not self.text:
            fitting = fit_names(missing, names_room)
            names = [name for name in self._names if name in fitting]
            text = steps_text(self._messages, tools, names)
            tokens = self._count(text)
            if tokens <= room:
                self.text, self.tokens = text, tokens
            elif names:
                names_room = int(names_room * 0.8 * room / tokens) - 1
            elif tools:
                tools = ()
            else:
                break
        return True

    def _remember(self, room: int, evidence: Evidence) -> list[str]:
        """The names worth most, best first: twice as many as can be written, the others are forgotten."""
        ranked = rank_names(self._names, evidence.worth)
        most = max(FEWEST_NAMES, int(room * CHARS_PER_TOKEN) // CHARS_PER_NAME * 2)
        if len(ranked) > most:
            best = set(ranked[:most])
            self._names = {name: None for name in self._names if name in best}
        return ranked[:most]

    def _count(self, text: str) -> int:
        dialect = self._conversation.dialect
        return self._conversation.read(raw(dialect.say(dialect.notice_role, text)), 0).tokens

"""Evidence: the names that later steps are likely to need, and how to keep them of a text that must shrink."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final

from pipeline.notices import condensed_text
from pipeline.view import Message

_TOKEN: Final = re.compile(r"[\w$@~/.][\w$@~/.+-]*[\w$/]")
_TELLS: Final = re.compile(r"[_/.\d@$-]|[a-z][A-Z]")  # more than a plain word
_ERROR: Final = re.compile(
    r"error|exception|traceback|\bfail|fatal|panic|denied|not found|undefined|unexpected|assert", re.IGNORECASE
)
_NUMBER: Final = re.compile(r"[\d.+-]+[a-zA-Z]?|[0-9a-f-]{7,}")
_FILE: Final = re.compile(r"\w\.[a-z]{1,4}$")
LONGEST_NAME: Final = 120
SHORTEST_NAME: Final = 3
LINES_SHARE: Final = 0.4  # of a condensed text; names alone say more in less
LONGEST_LINE: Final = 300
GLANCE: Final = (4_000, 2_000)  # characters of a long result that are looked at, in front and behind
SPOKEN_WORTH: Final = 0.8  # a number that somebody wrote is no longer one of many
NAMES_KNOWN: Final = 2**16
_SPEAKERS: Final = ("text", "call", "reasoning")

Worth = Callable[[str], float]


def names_in(text: str) -> list[str]:
    """Paths, symbols, ids and numbers of a text, in order, with repetitions."""
    return list(filter(_is_name, _TOKEN.findall(text)))


@lru_cache(NAMES_KNOWN)
def _is_name(token: str) -> bool:
    return SHORTEST_NAME <= len(token) <= LONGEST_NAME and _TELLS.search(token) is not None


def glance(text: str) -> str:
    """Both ends of a long text: what matters rarely stands only in between, and reading all of it takes time."""
    head, tail = GLANCE
    return text if len(text) <= head + tail else f"{text[:head]}\n{text[-tail:]}"


class Evidence:
    """What the conversation has shown to matter up to a point; every text is looked at once."""

    def __init__(self) -> None:
        self.spoken: Counter[str] = Counter()  # in how many messages a speaker wrote it
        self.present: Counter[str] = Counter()  # in how many live messages it stands
        self.seen: Counter[str] = Counter()  # how often it stands in all that was said and shown
        self._heard: dict[int, dict[str, None]] = {}  # what stood in a message as it came
        self._shown: dict[int, dict[str, None]] = {}  # and what stands there now

    def hear(self, index: int, message: Message) -> None:
        """Take in the next message."""
        said: list[str] = []
        shown: list[str] = []
        for part in message.parts:
            for _, text in part.slots:
                if part.kind in _SPEAKERS:
                    said += names_in(text)
                else:
                    shown += names_in(glance(text))
        names = said + shown
        self.seen.update(names)
        if said:
            self.spoken.update(set(said))
        self._heard[index] = dict.fromkeys(names)
        self._put(index, self._heard[index])

    def rewrite(self, index: int, message: Message) -> None:
        """A message now shows less."""
        texts = (text for part in message.parts for _, text in part.slots)
        self._put(index, dict.fromkeys(name for text in texts for name in names_in(glance(text))))

    def forget(self, index: int) -> Iterable[str]:
        """A message is gone; what stood in it."""
        self._put(index, {})
        return self._heard.get(index, {})

    def _put(self, index: int, names: dict[str, None]) -> None:
        before = self._shown.get(index)
        if before:
            self.present.subtract(before.keys())
        if names:
            self.present.update(names.keys())
        self._shown[index] = names

    def worth(self, name: str) -> float:
        """How likely a later step needs the name: by its kind, how often it was spoken of and seen."""
        spoken, seen = self.spoken.get(name, 0), self.seen.get(name, 1)
        kind = _kind_worth(name)
        if not spoken and seen < 2:
            return kind  # nearly all
        if spoken and kind < SPOKEN_WORTH:
            kind = SPOKEN_WORTH
        return kind * (1.0 + 2 * min(spoken, 4) + min(seen - 1, 3) / 2)


@lru_cache(NAMES_KNOWN)
def _kind_worth(name: str) -> float:
    """What names of a kind were worth in recorded sessions: file names most, plain numbers least."""
    if _NUMBER.fullmatch(name):
        return 0.15
    if _FILE.search(name):
        return 2.5
    return 1.5 if "/" not in name and "." not in name else 1.0


def condense(text: str, limit: int, worth: Worth) -> str:
    """The lines of a text that say most within ``limit`` characters, in their order, then the names they left out."""
    lines = list(_split(glance(text)))
    known = [names_in(line) for line in lines]
    chosen = _choose(lines, known, limit, worth)
    kept = [lines[i] for i in sorted(chosen)]
    covered = {name for i in chosen for name in known[i]}
    room = limit - sum(len(line) + 1 for line in kept)
    rest = dict.fromkeys(name for names in known for name in names if name not in covered)
    chosen_names = fit_names(rank_names(rest, worth), room)
    return condensed_text(len(text), kept, [name for name in rest if name in chosen_names])


def _split(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        stripped = line.rstrip()
        if len(stripped) <= LONGEST_LINE:
            if stripped:
                yield stripped
        else:
            yield from (stripped[i : i + LONGEST_LINE] for i in range(0, len(stripped), LONGEST_LINE))


def _choose(lines: list[str], known: list[list[str]], limit: int, worth: Worth) -> set[int]:
    """The lines with most worth a character, errors and both ends first, within a share of the room."""
    room = int(limit * LINES_SHARE)
    chosen: set[int] = set()
    ranked = sorted(range(len(lines)), key=lambda i: -_rank(i, lines, known, worth))
    for i in ranked:
        size = len(lines[i]) + 1
        if size <= room:
            room -= size
            chosen.add(i)
        if room < SHORTEST_NAME:
            break
    return chosen


def _rank(i: int, lines: list[str], known: list[list[str]], worth: Worth) -> float:
    value = sum(worth(name) for name in set(known[i]))
    value += 6.0 * bool(_ERROR.search(lines[i])) + 4.0 * (i == 0 or i == len(lines) - 1)
    return value / (len(lines[i]) + 10)


@lru_cache(NAMES_KNOWN)
def _price(name: str) -> float:
    """What the room for a name counts; not in full, for paths are long and wanted."""
    return math.sqrt(len(name) + 8)


def rank_names(names: Iterable[str], worth: Worth) -> list[str]:
    """Each name once, the one worth most for its room first."""
    values = {name: worth(name) / _price(name) for name in names}
    return sorted(values, key=values.__getitem__, reverse=True)


def fit_names(ranked: Iterable[str], room: int) -> set[str]:
    """The first names that fit into ``room`` characters with a comma each."""
    chosen: set[str] = set()
    for name in ranked:
        if len(name) + 2 <= room:
            room -= len(name) + 2
            chosen.add(name)
        elif room < SHORTEST_NAME + 2:
            break
    return chosen

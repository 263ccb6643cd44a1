"""The neutral view of a message: who speaks, and which parts of it are text, calls, results, reasoning or media."""

from typing import Literal

from msgspec import Raw, Struct

Role = Literal["system", "user", "assistant", "tool", "other"]
Kind = Literal["text", "call", "result", "reasoning", "media", "opaque"]
Path = tuple[str | int, ...]

TEXT, CALL, RESULT, REASONING, MEDIA, OPAQUE = 1, 2, 4, 8, 16, 32
PAIRED = CALL | RESULT
KIND_BITS: dict[Kind, int] = {
    "text": TEXT,
    "call": CALL,
    "result": RESULT,
    "reasoning": REASONING,
    "media": MEDIA,
    "opaque": OPAQUE,
}
REWRITABLE: tuple[Kind, ...] = ("text", "result")  # kinds whose slots are what stands in the item, letter by letter
Slot = tuple[Path, str]  # a text and where it lies in the raw item


class Part(Struct, frozen=True, gc=False):
    """One piece of a message; ``slots`` are the texts in it that an edit may rewrite."""

    kind: Kind
    path: Path
    slots: tuple[Slot, ...] = ()
    id: str = ""
    name: str = ""
    state: str = ""  # what the dialect knows of it: "error", "pending", "compacted", "bound", "media" inside a result
    size: int = 0  # characters of it that no slot shows

    @property
    def text(self) -> str:
        """All its text; the blocks of a result are joined by newlines."""
        return self.slots[0][1] if len(self.slots) == 1 else "\n".join(text for _, text in self.slots)


class View(Struct, frozen=True, gc=False):
    """What a dialect reads from one raw item."""

    role: Role
    parts: tuple[Part, ...]
    marks: frozenset[str] = frozenset()  # "summary", "compaction", "opaque": what stages must know beyond the role
    cache_marks: int = 0  # how many prompt-cache breakpoints it carries


def with_texts(view: View, texts: dict[Path, str]) -> View | None:
    """The view with other texts in some slots, as reading the changed item would give it; None if only that tells."""
    parts: list[Part] = []
    found = 0
    for part in view.parts:
        hits = [path for path, _ in part.slots if path in texts]
        if hits and (part.kind not in REWRITABLE or part.size):
            return None  # what no slot shows may go with the old text
        found += len(hits)
        parts.append(_with_slots(part, texts) if hits else part)
    return View(view.role, tuple(parts), view.marks, view.cache_marks) if found == len(texts) else None


def _with_slots(part: Part, texts: dict[Path, str]) -> Part:
    slots = tuple([(path, texts.get(path, text)) for path, text in part.slots])
    return Part(part.kind, part.path, slots, part.id, part.name, part.state, part.size)


class Message(Struct, frozen=True, gc=False):
    """One item of the array: its bytes, its view, its size, and the position it had (or was added before)."""

    raw: Raw
    view: View
    tokens: int
    position: int
    is_added: bool = False
    kinds: int = 0  # the bits of KIND_BITS that its parts have

    @property
    def role(self) -> Role:
        """Who speaks."""
        return self.view.role

    @property
    def parts(self) -> tuple[Part, ...]:
        """The message's pieces in order."""
        return self.view.parts

    def of_kind(self, kind: Kind) -> list[Part]:
        """The parts of one kind."""
        return [part for part in self.view.parts if part.kind == kind]

"""Rerank: order retrieved chunks by likeness to the question, drop the irrelevant; unclear structure is left alone."""

import math
import re
from collections import Counter
from typing import Final

from msgspec import Struct

from contracts import Code, Counts
from contracts.policy import Rag
from pipeline.conversation import Conversation
from pipeline.edits import Editor
from pipeline.units import is_prompt
from pipeline.view import Path

_WORD: Final = re.compile(r"\w{2,}")
_COMMON: Final = frozenset(
    re.findall(
        r"\w+",
        "the and for with that this from what how why when where which who are was were is it its in on of to as at by"
        " an be or not can could should would do does did has have had will about into than then there here you your",
    )
)
# Ways in which retrieved chunks are told apart; a block must be clear in exactly one of them.
_DELIMITERS: Final = (
    re.compile(r"(?=<(?:document|chunk|doc|source|passage)\b[^>]*>)", re.IGNORECASE),
    re.compile(r"(?m)^(?=\[\d+\][ \t:])"),
    re.compile(r"(?mi)^(?=(?:document|chunk|source|passage) \d+\b)"),
    re.compile(r"(?m)^-{3,}[ \t]*\n"),
)


class Block(Struct, frozen=True):
    """A text that holds chunks, where it lies, and the question they are measured against."""

    index: int
    path: Path
    before: str
    body: str
    after: str
    question: str


def rerank_context(conversation: Conversation, config: Rag, editor: Editor) -> tuple[Counts, tuple[Code, ...]]:
    """Rewrite the context block best chunk first without what is below the threshold; nothing when in doubt."""
    block = find_block(conversation, config.fence)
    if block is None:
        return Counts(), ()
    chunks = split_chunks(block.body)
    if chunks is None:
        return Counts(), (Code.RAG_AMBIGUOUS,)
    lead, pieces, joint = chunks
    question = _weights(block.question)
    scores = [cosine(question, _weights(piece)) for piece in pieces]
    order = sorted((i for i, score in enumerate(scores) if score >= config.threshold), key=lambda i: -scores[i])
    if not order or len(order) == len(pieces):
        return Counts(rag_kept=len(pieces)), ()
    body = lead + joint.join(pieces[i].rstrip("\n") + "\n" for i in order)
    text = block.before + body + block.after
    if not editor.rewrite(block.index, [(block.path, text)], "rerank", Code.LOW_RELEVANCE):
        return Counts(rag_kept=len(pieces)), ()
    return Counts(rag_kept=len(order), rag_dropped=len(pieces) - len(order)), ()


def find_block(conversation: Conversation, fence: str) -> Block | None:
    """The last fenced context of a user message, else the user message right before the question."""
    prompts = [(i, part) for i, m in enumerate(conversation.messages) if is_prompt(m) for part in m.of_kind("text")]
    if not prompts:
        return None
    last_index, last_part = prompts[-1]
    opening, closing = f"<{fence}>", f"</{fence}>"
    for index, part in reversed(prompts):
        start, end = part.text.find(opening), part.text.rfind(closing)
        if 0 <= start < end:
            start += len(opening)
            before, body, after = part.text[:start], part.text[start:end], part.text[end:]
            outside = f"{before} {after}".replace(opening, "").replace(closing, "")
            question = outside if part is last_part else last_part.text
            return Block(index, part.slots[0][0], before, body, after, question)
    if len(prompts) > 1 and prompts[-2][0] >= last_index - 1:
        index, part = prompts[-2]
        if split_chunks(part.text) is not None:
            return Block(index, part.slots[0][0], "", part.text, "", last_part.text)
    return None


def split_chunks(body: str) -> tuple[str, list[str], str] | None:
    """What stands before the chunks, the chunks, and what joins them; None unless one delimiter is clear."""
    found = []
    for delimiter in _DELIMITERS:
        pieces = delimiter.split(body)
        if len(pieces) > 2:
            found.append((delimiter, pieces))
    if len(found) != 1:
        return None
    delimiter, pieces = found[0]
    if delimiter is _DELIMITERS[-1]:
        return "", [piece for piece in pieces if piece.strip()], "---\n"
    return pieces[0], pieces[1:], ""


def _weights(text: str) -> dict[str, float]:
    """Term weights that depend on the text alone, so that a second run finds the same."""
    terms = Counter(word for word in _WORD.findall(text.lower()) if word not in _COMMON)
    return {term: 1 + math.log(count) for term, count in terms.items()}


def cosine(one: dict[str, float], other: dict[str, float]) -> float:
    """The cosine of two weighted term vectors."""
    if not one or not other:
        return 0.0
    dot = sum(weight * other.get(term, 0.0) for term, weight in one.items())
    return dot / math.sqrt(sum(w * w for w in one.values()) * sum(w * w for w in other.values()))

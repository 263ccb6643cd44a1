"""Call: one snapshot under way, and what the caller gets for it."""

import asyncio
import hashlib
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from contracts import Code, Edit, Pruned
from pipeline import apply_edits
from service.admit import Admission

FAILED_OPEN: Final = "failed_open"


class Answer(Struct, frozen=True):
    """What to send to the model: the pruned array, or the caller's own and in ``reason`` why.

    ``status`` is the result's, or ``failed_open`` when there is none.
    """

    messages: list[Any]
    status: str
    reason: list[str]
    result: Pruned | None = None


class Call:
    """One snapshot under way."""

    def __init__(
        self, admission: Admission, messages: Sequence[Any], sent: Sequence[Raw], *, is_id_reused: bool
    ) -> None:
        self.admission = admission
        self.messages = messages
        self.sent = sent
        self.is_id_reused = is_id_reused
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.began = time.monotonic()
        self.is_admitted = False
        self.is_settled = False

    def fail(self, *reason: str) -> None:
        """Hand back the original array."""
        if not self.answer.done():
            self.answer.set_result(fail_open(self.messages, *reason))

    def succeed(self, result: Pruned) -> None:
        """Hand over the result, unless it was made from another array."""
        if self.answer.done():
            return
        if self.is_id_reused and any(edit.op == "insert" for edit in result.edits):
            self.fail(Code.OTHER_ARRAY)  # nothing in an insertion tells where it belongs
        elif not all(is_made_for(self.sent, edit) for edit in result.edits):
            self.fail(Code.OTHER_ARRAY)
        else:
            self.answer.set_result(read_answer(self.messages, result))


def fail_open(messages: Sequence[Any], *reason: str) -> Answer:
    """The caller's own array, and why."""
    return Answer(list(messages), FAILED_OPEN, [str(code) for code in reason])


def is_made_for(sent: Sequence[Raw], edit: Edit) -> bool:
    """Whether an edit changes an item that this array has at that place."""
    if edit.op == "insert":
        return 0 <= edit.position <= len(sent)
    return 0 <= edit.position < len(sent) and hashlib.sha256(sent[edit.position]).hexdigest() == edit.sha256


def read_answer(messages: Sequence[Any], result: Pruned) -> Answer:
    """The caller's array with the result's edits made to it."""
    is_raw = any(isinstance(message, Raw) for message in messages)
    originals: Any = list(messages)
    edited = apply_edits(originals, result.edits)
    pruned = [msgspec.json.decode(item) if isinstance(item, Raw) and not is_raw else item for item in edited]
    return Answer(pruned, result.status, result.reason, result)

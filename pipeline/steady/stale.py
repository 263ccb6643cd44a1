"""Stale: results that a later call made worthless."""

import json
from typing import Any

from contracts import Code
from contracts.policy import Steady
from pipeline.conversation import Conversation
from pipeline.units import Call
from pipeline.view import Part


class Stale:
    """Results that a later call made worthless: read again, written over, or failed and tried again."""

    def __init__(self, conversation: Conversation, config: Steady) -> None:
        self._roles = config.tool_roles
        answered = [call for unit in conversation.units for call in unit.calls if call.result is not None]
        self._calls = sorted(answered, key=lambda call: (call.result_index, call.index))
        self._next = 0
        self._reads: dict[str, dict[str, tuple[int, Call]]] = {}
        self._failed: dict[tuple[str, str], list[tuple[int, Call]]] = {}
        self._failed_tools: set[str] = set()
        self._found: list[tuple[int, Call, Code]] = []

    def look(self, index: int, unit_of: list[int]) -> None:
        """Take in the calls answered before an index."""
        while self._next < len(self._calls) and self._calls[self._next].result_index < index:
            call = self._calls[self._next]
            self._next += 1
            self._see(unit_of[call.index], call)

    def take(self, until: int) -> list[tuple[int, Call, Code]]:
        """What has become worthless in the first ``until`` units, each once."""
        ready = [found for found in self._found if found[0] < until]
        self._found = [found for found in self._found if found[0] >= until]
        return ready

    def _see(self, number: int, call: Call) -> None:
        name = call.part.name
        assert call.result is not None
        if call.result.state == "error":
            self._failed_tools.add(name)
            self._failed.setdefault((name, _first_argument(call.part)), []).append((number, call))
            return
        if name in self._failed_tools:
            again = self._failed.pop((name, _first_argument(call.part)), [])
            self._found += [(old, failed, Code.RETRIED_CALL) for old, failed in again]
        role = self._roles.get(name)
        if role is not None:
            self._access(number, call, role.argument, role.access == "write")

    def _access(self, number: int, call: Call, argument: str, is_write: bool) -> None:
        arguments = _arguments(call.part)
        key = arguments.get(argument)
        if not isinstance(key, str):
            return
        reads = self._reads.setdefault(key, {})
        if is_write or len(arguments) == 1:
            self._found += [(old, read, Code.STALE_READ) for old, read in reads.values()]
            reads.clear()
        if not is_write:
            same = reads.pop(call.part.text, None)
            if same is not None:
                self._found.append((*same, Code.STALE_READ))
            reads[call.part.text] = (number, call)


def _arguments(part: Part) -> dict[str, Any]:
    try:
        value = json.loads(part.text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _first_argument(part: Part) -> str:
    arguments = _arguments(part)
    return str(next(iter(arguments.values()))) if arguments else part.text

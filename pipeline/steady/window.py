"""Window: where the last rounds begin and the live step starts, as far as the scan has come."""

from contracts import Policy
from contracts.policy import Steady
from pipeline.conversation import Conversation
from pipeline.keep import is_turn
from pipeline.units import is_prompt, is_whole_step
from pipeline.view import Message


class Window:
    """Where the last rounds begin and the live step starts, as far as the scan has come."""

    def __init__(self, conversation: Conversation, policy: Policy, config: Steady) -> None:
        self._turn, self._last, self._rounds = policy.turn, policy.keep.last, config.keep_rounds
        self._unit_starts = {unit.start for unit in conversation.units}
        calls = sorted((call for unit in conversation.units for call in unit.calls), key=lambda call: call.index)
        self._calls = [call for call in calls if call.part.state not in ("server", "pending")]
        self._next_call = 0
        self._turns: list[int] = []
        self._rounds_at: list[int] = []
        self._open_from = [0]  # for each index, where the run of waiting calls before it begins
        self._results_from = 0
        self._is_speaking = False
        self.last_prompt = -1

    @property
    def newest_call(self) -> int:
        """Where the model last began to speak."""
        return self._rounds_at[-1] if self._rounds_at else 0

    def take(self, index: int, message: Message) -> None:
        """Take in the next message."""
        here = index - 1
        kinds = [part.kind for part in message.parts]
        is_speaking = message.role == "assistant"
        if is_speaking and not self._is_speaking:
            self._rounds_at.append(here)
        self._is_speaking = is_speaking and not is_whole_step(message)
        waits = kinds.count("call") > kinds.count("result")
        self._open_from.append(self._open_from[here] if waits else index)
        if not kinds or any(kind != "result" for kind in kinds):
            self._results_from = index
        if is_turn(message):
            is_asked = is_prompt(message)
            if is_asked:
                self.last_prompt = here
            begins = {"message": True, "user": is_asked, "round": here in self._unit_starts}
            if begins[self._turn]:
                self._turns.append(here)

    def soft_floor(self) -> int:
        """Where the last rounds begin."""
        return self._rounds_at[-self._rounds] if len(self._rounds_at) > self._rounds else 0

    def hard_floor(self, index: int) -> int:
        """Where that begins which no cut may touch: the last turns, the live step, a call that still waits."""
        calls = self._calls
        while self._next_call < len(calls) and 0 <= calls[self._next_call].result_index < index:
            self._next_call += 1
        waiting = calls[self._next_call].index if self._next_call < len(calls) else index
        turns = self._turns[-self._last] if len(self._turns) > self._last else 0
        step = min(waiting, self._open_from[self._results_from])
        # What the model said in the same step as a call belongs to it.
        return min(turns, index - 1, step, self.newest_call if step < index else index)

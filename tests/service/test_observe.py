"""Observe: one strict-JSON line per snapshot, with known keys only and never a word of the conversation."""

import io
import json
from typing import Any

import pytest

from contracts import load_policy
from service.entry import Desk, prune_entry
from service.observe import KNOWN_KEYS, MAX_VALUE_CHARS, log_snapshot, open_log
from service.settings import LogLevel, LogStyle
from service.settle import Entry, Settlement, Verdict

CANARY = "CANARY-9f3"
DESK = Desk("tester", "{main}:snapshots:batch", load_policy("beskar"), 100_000, 4)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def settle(**fields: Any) -> Settlement:
    body = {"conversation_id": "c-1", "snapshot_id": "s-1", "messages": [{"role": "user", "content": CANARY}]} | fields
    return prune_entry(Entry("{main}:snapshots", "1700000000000-0", [b"__data__", json.dumps(body).encode()]), DESK)


def strict(text: str) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def lines(settlement: Settlement, verdict: Verdict, style: LogStyle = "json", level: LogLevel = "info") -> str:
    stream = io.StringIO()
    log_snapshot(open_log(style, level, stream).bind(lane="main", worker="tester"), settlement, verdict)
    return stream.getvalue()


LONG = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"{CANARY} {n}"} for n in range(50)]


@pytest.mark.parametrize(
    ("settlement", "verdict", "event", "status"),
    [
        (settle(messages=LONG), Verdict.OK, "context_pruner_applied", "pruned"),
        (settle(), Verdict.OK, "context_pruner_skipped", "unchanged"),
        (settle(messages=LONG), Verdict.SUPERSEDED, "context_pruner_skipped", "superseded"),
        (settle(), Verdict.DUPLICATE, "context_pruner_skipped", "duplicate"),
        (settle(policy="no-such"), Verdict.DEAD, "context_pruner_refused", "refused"),
        (settle(sequence=-1), Verdict.DEAD, "context_pruner_refused", "refused"),
    ],
)
def test_every_outcome_is_one_strict_line(settlement: Settlement, verdict: Verdict, event: str, status: str) -> None:
    text = lines(settlement, verdict)

    (line,) = strict(text)
    assert (line["event"], line["status"]) == (event, status)
    assert line.keys() <= KNOWN_KEYS
    assert CANARY not in text


def test_an_applied_line_says_what_was_saved() -> None:
    (line,) = strict(lines(settle(messages=LONG), Verdict.OK))

    assert line["turns_removed"] > 0
    assert line["messages_after"] < line["messages_before"] == 50
    assert line["tokens_after"] < line["tokens_before"]
    assert {"rag_kept", "rag_dropped", "policy", "duration_ms", "snapshot_id", "conversation_id"} <= line.keys()


def test_a_refused_line_gives_the_code() -> None:
    (line,) = strict(lines(settle(sequence=-1), Verdict.DEAD))

    assert (line["code"], line["reason"]) == ("out_of_range", ["out_of_range"])


def test_an_entry_settled_by_another_worker_is_not_logged_twice() -> None:
    assert lines(settle(), Verdict.SETTLED) == ""


@pytest.mark.parametrize("style", ["json", "console"])
def test_control_characters_and_line_breaks_stay_inside_one_line(style: LogStyle) -> None:
    stream = io.StringIO()

    open_log(style, "info", stream).info("worker\x1b[2J\nstarted", detail="a\x1b[31m\nb\u2028c", reason=["x\ny"])

    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


def test_unknown_keys_and_unknown_kinds_are_left_out() -> None:
    stream = io.StringIO()

    open_log("json", "info", stream).info("x", messages=CANARY, detail={"text": CANARY}, error=RuntimeError(CANARY))

    assert CANARY not in stream.getvalue()
    assert strict(stream.getvalue())[0]["detail"] == "dict"


def test_a_traceback_is_never_printed() -> None:
    stream = io.StringIO()
    log = open_log("json", "info", stream)
    try:
        raise RuntimeError(CANARY)
    except RuntimeError:
        log.exception("batch_failed")

    assert CANARY not in stream.getvalue()
    strict(stream.getvalue())


def test_long_values_are_cut_and_numbers_that_json_lacks_become_null() -> None:
    stream = io.StringIO()

    open_log("json", "info", stream).info("x", detail="y" * 10_000, duration_ms=float("nan"), delay_s=float("inf"))

    (line,) = strict(stream.getvalue())
    assert len(line["detail"]) == MAX_VALUE_CHARS
    assert line["duration_ms"] is line["delay_s"] is None


def test_a_lone_surrogate_does_not_break_the_line() -> None:
    stream = io.StringIO()

    open_log("json", "info", stream).info("x", detail="a\ud800b")

    assert strict(stream.getvalue())[0]["detail"] == "a?b"


def test_a_terminal_gets_readable_lines_and_a_pipe_gets_json() -> None:
    terminal, pipe = Terminal(), io.StringIO()

    for stream in (terminal, pipe):
        open_log("auto", "info", stream).info("worker_started", count=3)

    assert "worker_started" in terminal.getvalue()
    assert "count=3" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")
    assert strict(pipe.getvalue())[0]["count"] == 3


def test_lines_below_the_level_are_not_written() -> None:
    assert lines(settle(), Verdict.OK, level="warning") == ""

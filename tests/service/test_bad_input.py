"""Bad input: every row of the catalogue, on the entry, on the stream and in the logs; any bytes; never a quote."""

import io
import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from redis import Redis

from contracts import Code, Pruned, load_policy
from service.counters import Counters
from service.entry import Desk, prune_entry
from service.keys import GROUP, Keys
from service.observe import log_snapshot, open_log
from service.reader import read_entries
from service.settle import Entry, Settlement, Verdict
from tests.service.bad_inputs import CANARY, ELSEWHERE, GOOD, RESULT, ROWS, Bad, text
from tests.service.conftest import Lane

KEYS = Keys("main")
DESK = Desk("tester", KEYS.batch, load_policy(""), 32 * 2**20, 4)
LIGHT = [case for case in ROWS if not case.is_heavy]
PATIENCE_S = 30.0
MOST_SECONDS = 1.0
MOST_MB = 256


def take(fields: list[bytes]) -> Settlement:
    return prune_entry(Entry(KEYS.snapshots, "1700000000000-0", fields), DESK)


def outcome_of(settlement: Settlement) -> str:
    return settlement.refusal.code.value if settlement.refusal else RESULT


def everything_said(settlement: Settlement) -> str:
    """All that leaves a worker besides the result and the dead letter's own fields."""
    log, counters = io.StringIO(), Counters()
    for verdict in (Verdict.DEAD if settlement.refusal else Verdict.OK, Verdict.SUPERSEDED, Verdict.KEPT):
        log_snapshot(open_log("json", "debug", log), settlement, verdict)
        log_snapshot(open_log("console", "debug", log), settlement, verdict)
        counters.add(settlement, verdict)
    why = settlement.refusal.detail if settlement.refusal else ""
    rows = (settlement.row + settlement.short_row + generate_latest(counters.registry)).decode()
    return log.getvalue() + rows + why


def test_every_row_of_the_catalogue_is_here() -> None:
    assert {case.row for case in ROWS} | ELSEWHERE == set(range(1, 75))


@pytest.mark.parametrize("case", ROWS, ids=lambda case: case.id)
def test_an_entry_of_the_catalogue_has_its_outcome_and_nothing_of_it_is_quoted(case: Bad) -> None:
    settlement = take(case.fields)

    assert outcome_of(settlement) == case.outcome
    assert CANARY not in everything_said(settlement)
    if not settlement.refusal:
        msgspec.json.decode(settlement.result, type=Pruned)


def publish(redis: Any, cases: list[Bad]) -> dict[str, Bad]:
    """Add each case as an entry; the cases by entry id."""
    added = {redis.execute_command("XADD", KEYS.snapshots, "*", *case.fields).decode(): case for case in cases}
    assert len(added) == len(cases)
    return added


def run_worker(url: str, log: Path, redis: Any) -> str:
    """Have a worker settle all there is; its metrics page."""
    environ = {"SECATEUR_REDIS_URL": url, "SECATEUR_LOG": "json", "SECATEUR_LOG_LEVEL": "debug", "PATH": "/usr/bin"}
    environ["SECATEUR_HTTP_PORT"] = str(free_port())
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [sys.executable, "-m", "service.cli", "worker"], env=environ, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while redis.xlen(KEYS.snapshots):
            assert time.monotonic() < deadline, "entries were left"
            time.sleep(0.05)
        with urllib.request.urlopen(f"http://127.0.0.1:{environ['SECATEUR_HTTP_PORT']}/metrics") as page:
            return str(page.read(), "utf-8")
    finally:
        worker.terminate()
        worker.wait(PATIENCE_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def list_dead(url: str, *options: str) -> str:
    """What an operator sees of the dead letters without asking for content."""
    listed = subprocess.run(
        [sys.executable, "-m", "service.cli", "dead", "list", *options],
        env={"SECATEUR_REDIS_URL": url},
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout + listed.stderr


def test_a_worker_settles_the_whole_catalogue_and_quotes_nothing(redis_url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Redis.from_url(redis_url) as redis:
        listener = redis.pubsub()
        listener.subscribe("leak")
        cases = publish(redis, LIGHT)
        page = run_worker(redis_url, log, redis)
        outcomes = read_outcomes(redis)
        replies = [message for message in iter(listener.get_message, None) if message["type"] == "message"]
        listener.close()
    listings = list_dead(redis_url) + list_dead(redis_url, "--json")
    lines = log.read_text()

    assert {case.id: outcomes[entry] for entry, case in cases.items()} == {case.id: case.outcome for case in LIGHT}
    assert replies == []  # a producer-set reply_to is not obeyed
    assert CANARY not in page
    assert CANARY not in listings
    assert CANARY not in lines
    assert "secateur_balance 0.0" in page
    assert len(listings.splitlines()) > len([case for case in LIGHT if case.outcome != RESULT])
    for line in lines.splitlines():
        assert line.startswith("secateur worker") or json.loads(line, parse_constant=int)


def read_outcomes(redis: Any) -> dict[str, str]:
    """The outcome of each entry: its dead letter's code, or `result`."""
    rows = [json.loads(fields[b"__data__"]) for _, fields in redis.xrange(KEYS.metrics)]
    outcomes = {row["entry_id"]: RESULT if row["status"] != "refused" else row["reason"][0] for row in rows}
    letters = {
        fields[b"_source"].split()[1].decode(): fields[b"_code"].decode() for _, fields in redis.xrange(KEYS.dead)
    }
    assert letters == {entry: code for entry, code in outcomes.items() if code != RESULT}
    assert redis.xpending(KEYS.snapshots, GROUP)["pending"] == 0
    return outcomes


def test_an_entry_deleted_while_it_was_pending_is_passed_over() -> None:
    """Row 2."""
    rows = [[b"1-0", None], [b"2-0", []], [b"3-0", [b"__data__", GOOD]]]

    assert [entry.id for entry in read_entries(KEYS.snapshots, rows)] == ["3-0"]


@pytest.mark.parametrize("cap", range(1, 12))
def test_a_result_cut_among_wide_characters_holds_no_half_of_one(cap: int) -> None:
    """Row 15."""
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "run", "input": {}}]}
    answer = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "🧪é\u0301👩‍🚀" * 40}]}
    body = text(
        messages=[{"role": "user", "content": "go"}, call, answer, {"role": "user", "content": "go on"}],
        policy={"compress": {"max_tool_result_tokens": cap}, "count": "chars/4"},
    )

    settlement = take([b"__data__", body])

    json.loads(settlement.result)["messages"][2]["content"][0]["content"].encode()
    assert outcome_of(settlement) == RESULT


def test_a_small_stack_refuses_what_is_nested_too_deep() -> None:
    """Row 40: in a process of its own, since a fault would take the tests along."""
    program = """
import sys, threading
from contracts import Refused, decode_snapshot
deep = b'{"conversation_id":"c","messages":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}"
def decode():
    try:
        decode_snapshot(deep)
    except Refused as refused:
        print(refused.code)
threading.stack_size(2**20)
thread = threading.Thread(target=decode)
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (done.returncode, done.stdout.strip()) == (0, Code.TOO_DEEP)


async def test_two_snapshots_of_one_conversation_are_told_apart_by_id_and_sequence(lane: Lane) -> None:
    """Rows 53 to 56."""
    long = text(snapshot_id="a", sequence=1, messages=[{"role": "user", "content": "one"}] * 3)
    shorter = text(snapshot_id="b", sequence=2)
    other_body = text(snapshot_id="a", sequence=3)
    same_sequence = text(snapshot_id="c", sequence=2)
    no_sequence = text(snapshot_id="d")
    bodies = (long, shorter, other_body, same_sequence, no_sequence)

    verdicts = [(await lane.settler.settle([await lane.take(body)]))[0] for body in bodies]

    assert verdicts == [Verdict.OK, Verdict.OK, Verdict.OTHER_ARRAY, Verdict.SUPERSEDED, Verdict.OK]


def test_the_same_snapshot_gives_the_same_bytes() -> None:
    """Row 53."""
    first, second = (take([b"__data__", text(snapshot_id="s")]) for _ in range(2))

    assert first.result == second.result


def is_lawful(settlement: Settlement) -> bool:
    return bool(settlement.result) if settlement.refusal is None else settlement.refusal.code is not Code.INTERNAL


@given(st.binary(max_size=400))
def test_any_bytes_have_an_outcome(body: bytes) -> None:
    assert is_lawful(take([b"__data__", body]))


@given(st.data())
def test_any_damage_to_a_good_body_has_an_outcome(data: st.DataObject) -> None:
    body = bytearray(text(messages=[{"role": "user", "content": CANARY}] * 3, sequence=1, policy="beskar"))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))

    settlement = take([b"__data__", bytes(body)])

    assert is_lawful(settlement)
    # Damage can turn any word into a key that we know, so only whole quotes count.
    assert settlement.refusal is None or CANARY not in settlement.refusal.detail


NAMES = [
    *("role", "content", "type", "text", "id", "name", "input", "tool_use_id", "tool_calls", "function", "arguments"),
    *("call_id", "output", "parts", "functionCall", "functionResponse", "thinking", "signature", "source", "data"),
    *("state", "status", "time", "compacted"),
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=6)
    | st.sampled_from(["user", "assistant", "tool_use"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=20,
)
FORMATS = ["auto", "anthropic", "openai-chat", "openai-responses", "gemini", "opencode"]


@given(
    st.lists(VALUES, max_size=5),
    st.sampled_from(FORMATS),
    st.sampled_from(["beskar", "xzatoma", "tessera", "opencode"]),
)
def test_any_messages_have_an_outcome_that_is_no_fault_of_ours(messages: list[Any], format: str, policy: str) -> None:
    assert is_lawful(take([b"__data__", text(messages=messages, format=format, policy=policy)]))


def test_what_is_heavy_stays_within_its_time_and_memory() -> None:
    """Each in a child whose memory the system limits; time is the processor's, so a busy machine is no excuse."""
    program = [sys.executable, "-m", "tests.service.bad_input_child"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    figures = [json.loads(line) for line in done.stdout.splitlines()]

    assert done.returncode == 0, done.stderr[-2000:]
    assert [figure["id"] for figure in figures] == [case.id for case in ROWS if case.is_heavy]
    assert [figure for figure in figures if figure["seconds"] > MOST_SECONDS or figure["mb"] > MOST_MB] == []

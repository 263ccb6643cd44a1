"""``secateur audit``: a sound lane is found sound, and each way to lose or double a snapshot is found and named."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from service.admit import Admission, Gate, Limits
from service.audit import Auditor
from service.cli import main
from service.counters import Counters
from service.entry import prune_entry
from service.health import Health
from service.http import Routes
from service.keys import GROUP, Keys
from service.script import Script
from tests.integration.workers import WORKER, publish, running, unsettled
from tests.integration.workers import snapshot as numbered
from tests.service.conftest import Lane, snapshot

pytestmark = pytest.mark.usefixtures("only_the_server_is_set")

CANARY = "CANARY-9f3"
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def audit(capsys: Captured) -> Any:
    """Run the command: its exit code and its report."""

    def run() -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main(["audit", "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


async def admit(lane: Lane, name: str, **fields: Any) -> None:
    gate = Gate(lane.keys, Limits())
    await gate.script.load(lane.client)
    body = json.dumps(snapshot(snapshot_id=name, **fields)).encode()
    await lane.client.execute_command(*gate.command(Admission(lane.keys.snapshots, name, body)))


async def settle_all(lane: Lane) -> None:
    for stream in lane.keys.inputs:
        await lane.settler.settle([prune_entry(entry, lane.desk) for entry in await lane.read(stream)])


async def run_all_kinds(lane: Lane) -> None:
    """One snapshot for every kind of outcome."""
    await admit(lane, "admitted")
    for fields in (
        {"snapshot_id": "plain"},
        {"snapshot_id": "plain"},
        {},
        {"snapshot_id": 'odd "id"\\ \u00fc'},
        {"snapshot_id": "newer", "sequence": 2},
        {"snapshot_id": "older", "sequence": 1},
        {"snapshot_id": "private", "inbox": "me"},
        {"snapshot_id": "dead", "policy": "no-such-preset"},
        {"snapshot_id": "dead", "policy": "no-such-preset"},
        {"snapshot_id": "mended", "policy": "no-such-preset"},
        {"snapshot_id": "mended"},
    ):
        await lane.add(__data__=json.dumps(snapshot(**fields)))
    await lane.add(lane.keys.batch, __data__=json.dumps(snapshot(snapshot_id="batch")))
    await lane.add(__data__=b"{broken " + CANARY.encode())
    await settle_all(lane)


async def test_a_lane_with_every_kind_of_outcome_is_sound(lane: Lane, audit: Any) -> None:
    await run_all_kinds(lane)

    code, report = audit()
    assert (code, report["lost"], report["doubled"], report["balance"]) == (0, 0, 0, 0)
    assert (report["added"], report["settled"], report["pending"], report["unread"]) == (14, 14, 0, 0)
    assert report["outcomes"] == {"unchanged": 8, "refused": 3, "duplicate": 2, "superseded": 1}
    assert report["findings"] == report["notes"] == []


def test_an_empty_lane_is_sound(audit: Any) -> None:
    assert audit()[0] == 0


async def test_the_report_is_readable_and_holds_no_content(lane: Lane, capsys: Captured) -> None:
    await run_all_kinds(lane)

    assert main(["audit"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "lane main: sound"
    assert "added    14: settled 14, pending 0, unread 0" in out
    assert CANARY not in out + err


async def test_what_waits_is_not_lost(lane: Lane, audit: Any) -> None:
    await admit(lane, "s-1")
    await lane.read()
    await admit(lane, "s-2")

    code, report = audit()
    assert (code, report["pending"], report["unread"], report["lost"]) == (0, 1, 1, 0)


async def test_replayed_letters_are_accounted_for(lane: Lane, audit: Any) -> None:
    await run_all_kinds(lane)
    assert main(["dead", "replay", "--all"]) == 0
    code, waiting = audit()
    await settle_all(lane)
    code_after, settled = audit()

    assert (code, waiting["unread"]) == (0, 3)
    assert (code_after, settled["unread"], settled["lost"], settled["doubled"]) == (0, 0, 0, 0)


async def test_results_that_their_readers_took_away_are_not_lost(lane: Lane, audit: Any) -> None:
    await run_all_kinds(lane)
    await lane.client.delete(lane.keys.results("me"))
    await lane.client.xtrim(lane.keys.pruned, maxlen=1)

    assert audit()[0] == 0


async def test_large_results_count_by_the_id_beside_their_blob(lane: Lane, audit: Any) -> None:
    lane.settings = msgspec.structs.replace(lane.settings, blob_above_bytes=1)
    lane.settler = lane.settler_over(lane.client)
    await run_all_kinds(lane)

    assert audit()[0] == 0


async def test_trimmed_rows_are_left_out_and_noted(lane: Lane, audit: Any) -> None:
    for number in range(300):
        await admit(lane, f"s-{number}")
    for _ in range(3):
        await settle_all(lane)
    await lane.client.xtrim(lane.keys.metrics, maxlen=100, approximate=False)

    code, report = audit()
    assert code == 0
    assert report["notes"] == ["200 older metrics rows are trimmed and were not looked at"]


def names(report: dict[str, Any], what: str) -> set[str]:
    return {finding["id"] for finding in report["findings"] if what in finding["what"]}


async def test_an_unread_entry_that_was_trimmed_is_lost(lane: Lane, audit: Any) -> None:
    await run_all_kinds(lane)
    await admit(lane, "gone")
    await lane.add(__data__=json.dumps(snapshot(snapshot_id="gone too")))
    await lane.client.xtrim(lane.keys.snapshots, maxlen=0)

    code, report = audit()
    assert (code, report["lost"], report["balance"], report["doubled"]) == (1, 2, 2, 0)
    assert names(report, "neither in a stream nor settled") == {"gone"}
    assert "1 entries went without a trace" in report["notes"][0]


async def test_a_vanished_entry_is_lost(lane: Lane, audit: Any) -> None:
    settlement = await lane.take(snapshot(snapshot_id="gone", policy="no-such-preset"))
    await lane.client.xdel(lane.keys.snapshots, settlement.entry.id)
    await lane.settler.settle([settlement])

    code, report = audit()
    assert (code, report["lost"]) == (1, 1)
    assert names(report, "deleted by somebody else") == {"gone"}


async def test_an_entry_that_vanished_while_pending_is_named_by_its_admission(lane: Lane, audit: Any) -> None:
    await admit(lane, "gone")
    (entry,) = await lane.read()
    await lane.client.xdel(lane.keys.snapshots, entry.id)
    keys = [lane.keys.snapshots, lane.keys.metrics, lane.keys.attempts]
    await Script("claim").call(lane.client, keys, [GROUP, entry.id, "reaper", 0, 0])

    code, report = audit()
    assert (code, report["lost"], report["balance"]) == (1, 1, 0)
    assert names(report, "deleted by somebody else") == {"gone"}


async def test_a_letter_that_was_deleted_by_hand_is_lost(lane: Lane, audit: Any) -> None:
    await run_all_kinds(lane)
    await lane.client.delete(lane.keys.dead)

    code, report = audit()
    assert (code, report["lost"]) == (1, 3)
    assert {"dead", "mended"} < names(report, "dead letter is gone")


async def test_a_result_that_was_never_published_is_lost(lane: Lane, audit: Any) -> None:
    await run_all_kinds(lane)
    results = await lane.client.xrange(lane.keys.pruned)
    await lane.client.delete(lane.keys.pruned)
    for _, fields in results[1:]:
        await lane.client.xadd(lane.keys.pruned, fields)

    code, report = audit()
    assert (code, report["lost"], report["doubled"]) == (1, 1, 0)
    assert names(report, "its result is gone") == {"admitted"}


async def test_a_result_that_was_never_published_is_missed_after_trimming_too(lane: Lane, audit: Any) -> None:
    for number in range(10):
        await lane.add(__data__=json.dumps(snapshot(snapshot_id=f"s-{number}")))
    await settle_all(lane)
    await lane.client.delete(lane.keys.pruned)
    for _ in range(9):
        await lane.client.xadd(lane.keys.pruned, {"__data__": "{}"}, maxlen=3, approximate=False)

    code, report = audit()
    assert (code, report["lost"]) == (1, 1)


async def test_a_result_that_was_published_twice_is_doubled(lane: Lane, audit: Any) -> None:
    await run_all_kinds(lane)
    _, fields = (await lane.client.xrange(lane.keys.pruned))[0]
    await lane.client.xadd(lane.keys.pruned, fields)
    (_, private), *_ = await lane.client.xrange(lane.keys.results("me"))
    await lane.client.xadd(lane.keys.results("other"), private)

    code, report = audit()
    assert (code, report["lost"], report["doubled"]) == (1, 0, 2)
    assert names(report, "2 results") == {"admitted", "private"}


async def test_a_snapshot_that_was_settled_twice_is_doubled(lane: Lane, audit: Any) -> None:
    await lane.settler.settle([await lane.take(snapshot(snapshot_id="s-1"))])
    await lane.client.delete(lane.keys.done("s-1"))
    await lane.settler.settle([await lane.take(snapshot(snapshot_id="s-1"))])

    code, report = audit()
    assert (code, report["lost"], report["doubled"]) == (1, 0, 1)
    assert names(report, "2 results") == {"s-1"}


async def test_an_entry_that_has_two_rows_is_doubled(lane: Lane, audit: Any) -> None:
    await lane.settler.settle([await lane.take(snapshot(snapshot_id="s-1"))])
    ((_, row),) = await lane.client.xrange(lane.keys.metrics)
    await lane.client.xadd(lane.keys.metrics, row)

    code, report = audit()
    assert code == 1
    assert report["balance"] == -1
    assert names(report, "one entry settled twice") == {"s-1"}


async def test_more_findings_than_can_be_named_are_counted(lane: Lane, audit: Any, capsys: Captured) -> None:
    for number in range(150):
        await admit(lane, f"s-{number}")
    await lane.client.xtrim(lane.keys.snapshots, maxlen=0)

    code, report = audit()
    assert (code, report["lost"], len(report["findings"])) == (1, 150, 100)
    assert main(["audit"]) == 1
    assert "and 50 more" in capsys.readouterr().out


def test_an_audit_beside_running_workers_finds_nothing(redis_url: str, tmp_path: Path) -> None:
    with redis.Redis.from_url(redis_url) as client, running(WORKER, redis_url, tmp_path / "log", block_ms="100"):
        auditor, reports = Auditor(client, Keys("main")), []
        for start in range(0, 2_000, 200):
            publish(client, [numbered(number) for number in range(start, start + 200)])
            reports.append(auditor.run())
        while unsettled(client):
            reports.append(auditor.run())
        reports.append(auditor.run())

    assert [report for report in reports if not report.is_sound] == []
    assert reports[-1].settled == 2_000
    assert len({report.settled for report in reports}) > 2  # the audits did see the work in progress


async def test_the_balance_is_a_metric_and_shows_a_loss(lane: Lane) -> None:
    routes = Routes(lane.client, lane.keys, Health(), Counters())

    async def balance() -> float:
        _, _, text = await routes.metrics()
        (line,) = [line for line in text.decode().splitlines() if line.startswith("secateur_balance ")]
        return float(line.split()[1])

    await run_all_kinds(lane)
    assert await balance() == 0
    for _ in range(5):
        await lane.add(__data__="{}")
    assert await balance() == 0
    await lane.client.xtrim(lane.keys.snapshots, maxlen=0)
    assert await balance() == 5


def test_help_has_an_example(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["audit", "--help"])

    assert "example:\n  secateur audit" in capsys.readouterr().out

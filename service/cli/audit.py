"""``secateur audit``: prove that every snapshot has exactly one outcome."""

import argparse
import sys
from typing import TYPE_CHECKING, Final

from contracts import encode
from service.cli.command import add_command, add_lane
from service.cli.connect import open_client, reach_server, read_settings
from service.cli.output import plain, write_line
from service.cli.progress import show_progress

if TYPE_CHECKING:
    from service.audit import Report
    from service.cli.command import Commands

UNSOUND: Final = 1


def register(commands: "Commands") -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "audit",
        run,
        help="check that every snapshot has exactly one outcome",
        description=(
            "Reconcile a lane: every snapshot that was added has one result, is a dead letter, or still waits.\n"
            "Exit code 0: nothing is lost and nothing doubled; 1: something is, and the findings name it.\n"
            "Traffic may go on meanwhile; conversations are neither fetched nor shown."
        ),
        example="secateur audit --json",
    )
    add_lane(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(options: argparse.Namespace) -> int:
    """Audit the lane and print the report."""
    from service.audit import Auditor
    from service.keys import Keys

    settings = read_settings(lane=options.lane)
    with reach_server(settings) as url, open_client(url) as client:
        auditor = Auditor(client, Keys(settings.lane))
        with show_progress("audit", auditor.count()) as progress:
            report = auditor.run(lambda done: progress.update(done, f"{done} entries"))
    if options.json:
        write_line(encode(report))
    else:
        print(describe(report))
    sys.stdout.flush()
    return 0 if report.is_sound else UNSOUND


def describe(report: "Report") -> str:
    """The report for a reader; ids, never content."""
    outcomes = ", ".join(f"{plain(status)} {count}" for status, count in report.outcomes.items())
    lines = [
        f"lane {report.lane}: {'sound' if report.is_sound else 'NOT SOUND'}",
        f"  added    {report.added}: settled {report.settled}, pending {report.pending}, unread {report.unread}",
        f"  outcomes {outcomes or 'none'}",
        f"  balance  {report.balance}",
        f"  lost     {report.lost}",
        f"  doubled  {report.doubled}",
        *(f"  note: {note}" for note in report.notes),
        *(f"  {plain(finding.id)}: {finding.what}" for finding in report.findings),
    ]
    unnamed = report.lost + report.doubled - len(report.findings)
    return "\n".join([*lines, f"  and {unnamed} more"] if unnamed > 0 else lines)

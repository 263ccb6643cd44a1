"""``secateur dead``: look at dead letters, and send them back."""

import argparse
import getpass
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from contracts import Code, encode
from service.cli.command import add_command, add_lane, positive
from service.cli.connect import open_client, reach_server, read_settings
from service.cli.output import plain, write_line
from service.cli.problem import Problem
from service.cli.progress import show_progress

if TYPE_CHECKING:
    from service.cli.command import Commands
    from service.dead import DeadLetters, Letter, Outcome, Search
    from service.settings import Settings

RATE: Final = 50
MOST_REPLAYS: Final = 3
PATIENCE_S: Final = 60
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def register(commands: "Commands") -> None:
    """Add the command and its three acts to the command line."""
    dead = commands.add_parser(
        "dead",
        help="look at refused snapshots and replay them",
        description="Look at refused snapshots (dead letters) and send them back to their stream.",
        epilog="example:\n  secateur dead list --code internal",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    acts = dead.add_subparsers(dest="act", metavar="ACT", required=True)
    _register_list(acts)
    _register_show(acts)
    _register_replay(acts)


def _register_list(acts: "Commands") -> None:
    parser = add_command(
        acts,
        "list",
        list_letters,
        help="one line for each letter, without its content",
        description="List dead letters, oldest first: id, age, code, snapshot, size, detail. Content is never shown.",
        example="secateur dead list --code internal --newer-than 2h",
    )
    _add_search(parser)
    parser.add_argument("--limit", type=positive, metavar="N", help="stop after N letters")
    parser.add_argument("--json", action="store_true", help="print each as JSON")
    add_lane(parser)


def _register_show(acts: "Commands") -> None:
    parser = add_command(
        acts,
        "show",
        show_letter,
        help="one letter with its content",
        description="Show one dead letter as JSON, conversation included.",
        example="secateur dead show 1795000000000-0",
    )
    parser.add_argument("id", metavar="ID", help="the letter's id, as `dead list` prints it")
    add_lane(parser)


def _register_replay(acts: "Commands") -> None:
    parser = add_command(
        acts,
        "replay",
        replay_letters,
        help="send letters back to their stream",
        description=(
            "Send dead letters back to the stream they came from: those named, or all that the filters leave.\n"
            "A letter is replayed once, whoever else tries; each replay is recorded in the lane's ops stream.\n"
            "Letters that are buried while the command runs are left for the next one."
        ),
        example="secateur dead replay --code unsupported_version --older-than 10m --dry-run",
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="letters by id")
    _add_search(parser)
    parser.add_argument("--all", action="store_true", help="every letter")
    parser.add_argument("--limit", type=positive, metavar="N", help="stop after N letters")
    parser.add_argument("--rate", type=positive, default=RATE, metavar="N", help=f"a second, at most (default: {RATE})")
    parser.add_argument(
        "--max-replays",
        type=positive,
        default=MOST_REPLAYS,
        metavar="N",
        help=f"leave letters that came back this often (default: {MOST_REPLAYS})",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be replayed")
    add_lane(parser)


def _add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--code", action="append", default=[], metavar="CODE", help="only this code; may be repeated")
    parser.add_argument("--older-than", type=duration, metavar="AGE", help="such as 30s, 15m, 6h, 2d")
    parser.add_argument("--newer-than", type=duration, metavar="AGE", help="such as 30s, 15m, 6h, 2d")


def duration(text: str) -> int:
    """Seconds out of a number and a unit, for argparse."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if not found:
        raise ValueError
    return int(found[1]) * UNITS[found[2]]


duration.__name__ = "age"


def list_letters(options: argparse.Namespace) -> int:
    """Print one line for each letter, and how many there are of each code."""
    with _open(options) as (letters, _):
        now_ms, codes = letters.now_ms(), Counter[str]()
        for letter in _limited(letters.find(_search(options, now_ms)), options.limit):
            codes[letter.code] += 1
            write_line(encode(letter) if options.json else describe(letter, now_ms).encode())
    if not options.json:
        print(f"secateur dead: {_tally(codes)}", file=sys.stderr)
    return 0


def show_letter(options: argparse.Namespace) -> int:
    """Print one letter whole."""
    _check_id(options.id)
    with _open(options) as (letters, _):
        letter = letters.read(options.id)
    if letter is None:
        raise Problem(f"there is no letter {options.id}: it was replayed, or never was")
    write_line(encode(letter))
    return 0


def replay_letters(options: argparse.Namespace) -> int:
    """Send letters back, at a steady rate."""
    for letter_id in options.ids:
        _check_id(letter_id)
    has_filter = bool(options.code or options.older_than is not None or options.newer_than is not None)
    if bool(options.ids) + (has_filter or options.all) != 1:
        raise Problem("say which letters: ids, or filters, or --all")
    with _open(options) as (letters, settings):
        chosen = _chosen(letters, options)
        if options.dry_run:
            return _rehearse(chosen, options.max_replays)
        return _replay(letters, settings, chosen, options)


def _chosen(letters: "DeadLetters", options: argparse.Namespace) -> Iterator["Letter"]:
    from service.dead import Search

    if options.ids:
        for letter_id in options.ids:
            found = list(letters.find(Search(first_id=letter_id, last_id=letter_id)))
            if not found:
                raise Problem(f"there is no letter {letter_id}: it was replayed, or never was")
            yield from found
        return
    yield from _limited(letters.find(_search(options, letters.now_ms(), letters.last_id())), options.limit)


def _rehearse(chosen: Iterator["Letter"], most_replays: int) -> int:
    codes, kept = Counter[str](), 0
    for letter in chosen:
        if letter.is_replayable and letter.replays < most_replays:
            codes[letter.code] += 1
        else:
            kept += 1
    print(f"secateur dead: would replay {_tally(codes)}; {kept} would be kept", file=sys.stderr)
    return 0


def _replay(
    letters: "DeadLetters", settings: "Settings", chosen: Iterator["Letter"], options: argparse.Namespace
) -> int:
    tally, due = Counter[str](), time.monotonic()
    with show_progress("replay", len(options.ids) or options.limit or letters.count()) as progress:
        for letter in chosen:
            time.sleep(max(0.0, due - time.monotonic()))
            due = time.monotonic() + 1 / options.rate
            outcome = _replay_one(letters, settings, letter, options.max_replays)
            tally[outcome.verdict] += 1
            if outcome.verdict == "KEPT":
                print(f"secateur dead: {letter.id} ({letter.code}) kept: {outcome.detail}", file=sys.stderr)
            progress.update(tally.total(), f"{tally['REPLAYED']} replayed")
    print(
        f"secateur dead: {tally['REPLAYED']} replayed, {tally['KEPT']} kept, {tally['GONE']} gone already",
        file=sys.stderr,
    )
    return 2 if options.ids and tally["REPLAYED"] < len(options.ids) else 0


def _replay_one(letters: "DeadLetters", settings: "Settings", letter: "Letter", most_replays: int) -> "Outcome":
    from service.settle import growing_delays

    deadline, operator = time.monotonic() + PATIENCE_S, f"{_user()}@{socket.gethostname()}"
    for delay in growing_delays():
        outcome = letters.replay(
            letter.id, operator=operator, most_replays=most_replays, most_entries=settings.admit_entries
        )
        if outcome.verdict != "FULL":
            return outcome
        if time.monotonic() > deadline:
            raise Problem(f"the stream holds {outcome.detail} entries and none went for {PATIENCE_S} s: add workers")
        time.sleep(delay)
    raise AssertionError("the delays never end")


@contextmanager
def _open(options: argparse.Namespace) -> Iterator[tuple["DeadLetters", "Settings"]]:
    from service.dead import DeadLetters
    from service.keys import Keys

    settings = read_settings(lane=options.lane)
    with reach_server(settings) as url, open_client(url) as client:
        yield DeadLetters(client, Keys(settings.lane)), settings


def describe(letter: "Letter", now_ms: int) -> str:
    """A letter in one line, without a word of its content."""
    notes = f"  replays {letter.replays}" if letter.replays else ""
    notes += "" if letter.is_replayable else "  not replayable"
    age, size = _age(now_ms - letter.buried_ms), f"{letter.body_bytes} bytes"
    facts = (letter.id, age, letter.code, letter.snapshot_id, size, f"attempts {letter.attempts}{notes}", letter.detail)
    return "  ".join(plain(fact) for fact in facts)


def _search(options: argparse.Namespace, now_ms: int, last_id: str = "+") -> "Search":
    from service.dead import Search

    unknown = sorted(set(options.code) - set(Code))
    if unknown:
        raise Problem(f"no such code: {plain(unknown[0])} (docs/codes.md lists them)")
    first_id = "-" if options.newer_than is None else str(max(0, now_ms - options.newer_than * 1000))
    if options.older_than is not None:
        last_id = str(max(0, now_ms - options.older_than * 1000))
    return Search(frozenset(options.code), first_id, last_id)


def _limited(letters: Iterator["Letter"], limit: int | None) -> Iterator["Letter"]:
    for number, letter in enumerate(letters):
        if number == limit:
            return
        yield letter


def _check_id(text: str) -> None:
    from service.dead import ENTRY_ID

    if not ENTRY_ID.fullmatch(text):
        raise Problem(f"{plain(text)[:40]!r} is no letter's id: they look like 1795000000000-0")


def _tally(codes: Counter[str]) -> str:
    by_code = ", ".join(f"{plain(code)} {count}" for code, count in codes.most_common())
    letters = "1 letter" if codes.total() == 1 else f"{codes.total()} letters"
    return f"{letters} ({by_code})" if by_code else letters


def _age(milliseconds: int) -> str:
    seconds = max(0, milliseconds // 1000)
    for unit in "dhm":
        if seconds >= UNITS[unit]:
            return f"{seconds // UNITS[unit]}{unit}"
    return f"{seconds}s"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"

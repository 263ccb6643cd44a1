"""``secateur prune``: one conversation through the pipeline, no server needed."""

import argparse
from typing import TYPE_CHECKING

import msgspec

from contracts import MAX_BODY_BYTES, Code, Refused, Snapshot, decode_snapshot, encode
from pipeline import check_format, known_formats
from service.cli.command import add_command, add_policy
from service.cli.output import write_line
from service.cli.policies import choose_policy, policy_source
from service.cli.records import BROKEN_PACKING, STDIN, as_snapshot, conversation_name, open_input

if TYPE_CHECKING:
    from service.cli.command import Commands


def register(commands: "Commands") -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "prune",
        run,
        help="prune one conversation",
        description=(
            "Prune one conversation: a snapshot object or a bare messages array comes in,\n"
            "one result with the pruned array and the ledger of its edits goes out as JSON.\n"
            "Exit code 0, or 2 with a one-line reason when the input is refused."
        ),
        example=(
            """echo '[{"role":"user","content":"hello"},{"role":"user","content":"again"}]' | """
            """secateur prune --policy '{"prune":{"strategy":"sliding_window","max_turns":1}}'"""
        ),
    )
    add_policy(parser, instead_of="default: the snapshot's own, else the default preset")
    parser.add_argument("--format", metavar="F", help=f"the wire format: {', '.join(known_formats())}")
    parser.add_argument("--explain", action="store_true", help="show a table of what happened instead of JSON")
    parser.add_argument("file", nargs="?", default=STDIN, metavar="FILE", help="a JSON file, or - for standard input")


def run(options: argparse.Namespace) -> int:
    """Prune what the file holds and print the result."""
    from pipeline import prune

    source = None if options.policy is None else policy_source(options.policy)
    snapshot = read_snapshot(options.file, options.format)
    result = prune(snapshot, choose_policy(snapshot, source))
    if options.explain:
        from service.cli.explain import print_explanation

        print_explanation(snapshot, result)
    else:
        write_line(encode(result))
    return 0


def read_snapshot(name: str, wire: str | None = None) -> Snapshot:
    """The snapshot in a file, with its format overridden when one is given."""
    if wire is not None:
        check_format(wire)
    try:
        with open_input(name) as (_, file):
            body = file.read(MAX_BODY_BYTES + 1)
    except BROKEN_PACKING as error:
        raise Refused(Code.BAD_ENCODING, str(error)) from None
    snapshot = decode_snapshot(as_snapshot(body, conversation_name(name)))
    return msgspec.structs.replace(snapshot, format=wire) if wire else snapshot

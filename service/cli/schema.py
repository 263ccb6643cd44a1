"""``secateur schema``: the JSON Schemas of everything that crosses a process boundary."""

import argparse
import difflib
from typing import TYPE_CHECKING

import msgspec

from contracts import encode, json_schemas
from contracts.schema import CONTRACTS
from service.cli.command import add_command
from service.cli.output import write_line
from service.cli.problem import Problem

if TYPE_CHECKING:
    from service.cli.command import Commands


def register(commands: "Commands") -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "schema",
        run,
        help="print the JSON Schemas of events and policies",
        description="Print the JSON Schema of one contract, or an object with all of them by name.",
        example="secateur schema snapshot",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"one of {', '.join(CONTRACTS)}")


def run(options: argparse.Namespace) -> int:
    """Print one schema or all."""
    schemas = json_schemas()
    if options.name is not None and options.name not in schemas:
        close = difflib.get_close_matches(options.name, schemas, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(schemas)}"
        raise Problem(f"no schema {options.name!r}; {hint}")
    chosen = schemas if options.name is None else schemas[options.name]
    write_line(msgspec.json.format(encode(chosen)))
    return 0

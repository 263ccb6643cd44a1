"""How every command presents itself: a help line, a description, an example that works."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[Any]

Run = Callable[[argparse.Namespace], int]


def add_command(
    commands: "Commands", name: str, run: Run, *, help: str, description: str, example: str
) -> argparse.ArgumentParser:
    """One subcommand; the caller adds its arguments."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_lane(parser: argparse.ArgumentParser) -> None:
    """The lane option, the same wherever a command talks to the server."""
    parser.add_argument("--lane", help="the group of streams to use (default: SECATEUR_LANE, else main)")


def add_policy(parser: argparse.ArgumentParser, *, instead_of: str) -> None:
    """The policy option, the same wherever a command prunes or publishes."""
    parser.add_argument("--policy", metavar="P", help=f"a preset's name, a JSON file or inline JSON; {instead_of}")


def positive(text: str) -> int:
    """A whole number of at least one, for argparse."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


positive.__name__ = "positive number"  # what argparse says was expected

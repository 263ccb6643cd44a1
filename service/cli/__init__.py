"""The command line: ``secateur COMMAND``, one file per command."""

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

from contracts import Refused
from service.cli import audit, dead, demo, prune, publish, reprocess, schema, tail, worker
from service.cli.problem import Problem, Terminated

REGISTER: Final = (
    demo.register,
    worker.register,
    prune.register,
    publish.register,
    tail.register,
    dead.register,
    audit.register,
    reprocess.register,
    schema.register,
)

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)

REFUSED: Final = 2
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
TERMINATED: Final = 143


class Parser(argparse.ArgumentParser):
    """A parser that names a mistake in one line instead of printing the whole usage."""

    def error(self, message: str) -> NoReturn:
        """End the command with the mistake and where to read more."""
        self.exit(REFUSED, f"{self.prog}: {message} (see {self.prog} --help)\n")


class ShowVersion(argparse.Action):
    """Print the installed version; looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"secateur {version('secateur')}")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code, with every user error told in one line."""
    parser = build_parser()
    options = parser.parse_args(argv)
    try:
        with _terminating():
            code = int(options.run(options))
            if sys.stdout is not None:
                sys.stdout.flush()
            return code
    except (Problem, Refused) as error:
        return _fail(options.command, str(error))
    except BrokenPipeError:
        _abandon_broken_output()
        return BROKEN_PIPE
    except OSError as error:
        _abandon_broken_output()
        return _fail(options.command, _describe(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Terminated:
        return TERMINATED


def build_parser() -> argparse.ArgumentParser:
    """The whole command line as argparse sees it."""
    parser = Parser(
        prog="secateur",
        description="Keep LLM agents' conversations small, valid and cheap.",
        epilog="Try it: secateur demo",
    )
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for register in REGISTER:
        register(commands)
    return parser


def _fail(command: str, reason: str) -> int:
    print(f"secateur {command}: {' '.join(reason.split())}", file=sys.stderr)
    return REFUSED


def _describe(error: OSError) -> str:
    what = error.strerror or str(error)
    return f"{error.filename}: {what}" if error.filename else what


def _abandon_broken_output() -> None:
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        # What is still buffered would fail again, loudly, when the interpreter flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _terminating() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    # An ignored SIGHUP (nohup) stays ignored.
    caught = [number for number in STOP_SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    for number in caught:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)

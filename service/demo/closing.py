"""How the demo ends: the account, one conversation before and after, and what to try next."""

import os
import shutil
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from service.cli.explain import edit_table, headline
from service.demo.show import saved_share
from service.demo.tally import Sample, Tally


def print_closing(console: Console, tally: Tally, problems: Sequence[str]) -> None:
    """Everything a viewer should take away, problems first."""
    for problem in problems:
        console.print(Text(f"PROBLEM: {problem}", style="bold red"), soft_wrap=True)
    if tally.sample:
        _print_sample(console, tally.sample)
    console.print(Text("\n".join(["", *account(tally), "", *what_next(), ""])), soft_wrap=True)


def find_problems(tally: Tally) -> list[str]:
    """What is wrong with the account, a line each."""
    found = []
    if tally.waiting:
        found.append(f"{len(tally.waiting)} of {tally.sent} snapshots got no result")
    if tally.twice:
        found.append(f"{tally.twice} snapshots got more than one result")
    if tally.refused:
        found.append(f"refused: {', '.join(f'{code} {count}' for code, count in tally.refused.items())}")
    return found


def account(tally: Tally) -> list[str]:
    """What was published, what came back, what it saved."""
    twice = f"{tally.twice} twice" if tally.twice else "none twice"
    missing = f"{len(tally.waiting)} missing" if tally.waiting else "none missing"
    verdict = "Every snapshot has exactly one result" if tally.is_balanced else "The account does not balance"
    return [
        f"{verdict}: {tally.sent:,} published, {len(tally.results):,} answered, {missing}, {twice}.",
        f"Tokens that need not be sent to a model: {tally.tokens_before - tally.tokens_after:,} "
        f"of {tally.tokens_before:,} ({saved_share(tally):.0%}).",
    ]


def what_next() -> list[str]:
    """Commands that work as they stand."""
    secateur = _how_to_call()
    return [
        "Try next:",
        f"""  echo '[{{"role":"user","content":"hello"}}]' | {secateur} prune     one conversation, no server""",
        f"  {secateur} worker                        a worker with its own server; leave it running, and elsewhere:",
        f"""  echo '{{"conversation_id":"c1","messages":[]}}' | {secateur} publish -""",
        f"  {secateur} tail --from-start             what came of it",
        f"  {secateur} reprocess --help              months of stored conversations, on all cores",
    ]


def _print_sample(console: Console, sample: Sample) -> None:
    console.print(Text("\nOne conversation, before and after", style="bold"))
    console.print(Text(headline(sample.result, len(sample.messages))), soft_wrap=True)
    console.print(edit_table(sample.messages, sample.result))


def _how_to_call() -> str:
    called = os.path.realpath(sys.argv[0])
    found = shutil.which("secateur")
    if found and os.path.realpath(found) == called:
        return "secateur"
    return os.path.relpath(called) if os.path.basename(called) == "secateur" else "secateur"

"""What one sees while the demo runs: a live view on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from service.demo.tally import Tally

LINE_EVERY_S: Final = 2.0
BAR_WIDTH: Final = 40
STAGES: Final = ("compress", "collapse", "prune")


class Show(Protocol):
    """Told a few times a second how the run goes."""

    def update(self, tally: Tally, now: float, note: str = "") -> None:
        """Show the figures of this moment, ``now`` in seconds since the start."""


@contextmanager
def showing(console: Console, title: str, seconds: int) -> Iterator[Show]:
    """A show that fits the console."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=False) as live:
            yield LiveShow(live, title, seconds)
    else:
        console.print(Text(title), soft_wrap=True)
        yield LineShow(console)


class LiveShow:
    """The figures as a panel that is drawn again and again."""

    def __init__(self, live: Live, title: str, seconds: int) -> None:
        self._live, self._title, self._seconds = live, title, seconds
        self._drawn_at = -1.0

    def update(self, tally: Tally, now: float, note: str = "") -> None:
        """Draw the panel, at most eight times a second."""
        if now - self._drawn_at < 0.125 and not note:
            return
        self._drawn_at = now
        state = note or f"{min(now, self._seconds):.0f} of {self._seconds} s"
        self._live.update(Group(Text(f"{self._title}   {state}\n", style="bold"), panel(tally, now)), refresh=True)


class LineShow:
    """The figures as one line every two seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_at = LINE_EVERY_S

    def update(self, tally: Tally, now: float, note: str = "") -> None:
        """Print the line when it is time."""
        if now < self._next_at:
            return
        self._next_at = now + LINE_EVERY_S
        self._console.print(Text(line(tally, now)), soft_wrap=True)


def line(tally: Tally, now: float) -> str:
    """Everything the panel shows, in one line."""
    stages = " ".join(f"{stage} {tally.saved_by_stage[stage]:,}" for stage in STAGES)
    outcomes = " ".join(f"{status} {count:,}" for status, count in sorted(tally.outcomes.items()))
    return (
        f"{now:4.0f} s  {tally.rate(now):.0f} snapshots/s  "
        f"delay p50 {tally.delay_ms(0.5)} ms p99 {tally.delay_ms(0.99)} ms  "
        f"tokens {tally.tokens_before:,} -> {tally.tokens_after:,} (-{saved_share(tally):.0%})  "
        f"saved: {stages}  outcomes: {outcomes or 'none yet'}"
    )


def panel(tally: Tally, now: float) -> RenderableType:
    """The figures, a row each."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify="right", style="dim")
    grid.add_column(justify="right")
    grid.add_column()
    whole, saved = max(tally.tokens_before, 1), saved_share(tally)
    grid.add_row("snapshots", f"{tally.sent:,}", f"{tally.rate(now):.0f}/s, {len(tally.waiting)} under way")
    grid.add_row("queue delay", f"{tally.delay_ms(0.5)} ms", f"half stay below; 99 % below {tally.delay_ms(0.99)} ms")
    grid.add_row("tokens before", f"{tally.tokens_before:,}", _bar(tally.tokens_before / whole, "red"))
    grid.add_row("tokens after", f"{tally.tokens_after:,}", _bar(tally.tokens_after / whole, "green", saved))
    for stage in STAGES:
        part = tally.saved_by_stage[stage]
        grid.add_row(f"saved by {stage}", f"{part:,}", _bar(part / whole, "cyan"))
    for status, count in sorted(tally.outcomes.items()):
        grid.add_row(status, f"{count:,}", "")
    return grid


def saved_share(tally: Tally) -> float:
    """How much of the tokens need not be sent to a model."""
    return 1 - tally.tokens_after / tally.tokens_before if tally.tokens_before else 0.0


def _bar(share: float, colour: str, saved: float | None = None) -> Text:
    bar = Text("█" * round(min(share, 1.0) * BAR_WIDTH), style=colour)
    return bar if saved is None else bar.append(f"  -{saved:.0%}", style="bold green")

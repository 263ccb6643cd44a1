"""Progress of a long command on standard error: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from service.cli.output import is_watched

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

QUIET_S: Final = 1.0  # nothing is drawn for a command that is over at once
LINE_EVERY_S: Final = 5.0


class Progress(Protocol):
    """Told now and then how far the work is."""

    def update(self, done: int, note: str) -> None:
        """``done`` of the total is behind us; ``note`` says what came of it."""


@contextmanager
def show_progress(title: str, total: int) -> Iterator[Progress]:
    """A progress that fits where standard error goes; ``total`` 0 means unknown."""
    progress = BarProgress(title, total) if is_watched() else LineProgress(title, total)
    try:
        yield progress
    finally:
        progress.close()


class BarProgress:
    """A bar, drawn once the work takes long enough to be waited for."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total = title, total
        self._show_at = time.monotonic() + QUIET_S
        self._bar: Bar | None = None

    def update(self, done: int, note: str) -> None:
        """Draw or move the bar."""
        if self._bar is None and time.monotonic() >= self._show_at:
            self._bar = self._draw()
        if self._bar:
            self._bar.update(self._bar.task_ids[0], completed=done, note=note)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._bar:
            self._bar.stop()

    def _draw(self) -> "Bar":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        note = TextColumn("{task.fields[note]}")
        times = (TimeElapsedColumn(), TimeRemainingColumn())
        bar = Progress(TextColumn("{task.description}"), BarColumn(), note, *times, console=Console(stderr=True))
        bar.add_task(self.title, total=self.total or None, note="")
        bar.start()
        return bar


class LineProgress:
    """A line every few seconds, for logs and pipes."""

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total = title, total
        self._show_at = time.monotonic() + LINE_EVERY_S

    def update(self, done: int, note: str) -> None:
        """Print a line when the last one is old enough."""
        if time.monotonic() < self._show_at:
            return
        self._show_at = time.monotonic() + LINE_EVERY_S
        share = f" {min(done / self.total, 1):.0%}" if self.total else ""
        print(f"{self.title}:{share} {note}", file=sys.stderr)

    def close(self) -> None:
        """Nothing to leave behind."""

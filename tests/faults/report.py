"""The report: a table with a row per fault, and the same figures as JSON."""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.faults.storm import Storm

HEADINGS: Final = ("fault", "injected", "lost", "doubled", "recovery, median", "longest")
UNKNOWN_FAULT: Final = "none"
STORM_NOTE: Final = "In a storm the next fault does not wait until the last one is recovered from."


@dataclass(frozen=True)
class Row:
    """One fault: how often, what it did, and seconds until its traces were gone (None: nothing to recover)."""

    fault: str
    injected: int
    lost: int = 0
    doubled: int = 0
    recovery_s: float | None = None
    longest_s: float | None = None
    note: str = ""

    def recovering(self, seconds: list[float]) -> "Row":
        """This row with the times that recovery took; a time of 0 had nothing to recover."""
        times = [one for one in seconds if one]
        if not times:
            return self
        return replace(self, recovery_s=round(statistics.median(times), 3), longest_s=round(max(times), 3))


def storm_rows(storm: Storm) -> list[Row]:
    """A row per kind of fault; a loss counts for the fault that came last before it."""
    times = defaultdict(list)
    for injection in storm.injections:
        times[injection.fault].append(injection.recovery_s)
    lost, doubled = _blame(storm)
    names = [*times, *(name for name in (*lost, *doubled) if name not in times)]
    rows = [_row(name, times[name], lost[name], doubled[name]) for name in dict.fromkeys(names)]
    return sorted(rows, key=lambda row: row.fault.lower())


def _row(fault: str, recoveries: list[float | None], lost: int, doubled: int) -> Row:
    return Row(fault, len(recoveries), lost, doubled).recovering([one or 0.0 for one in recoveries])


def _blame(storm: Storm) -> tuple[dict[str, int], dict[str, int]]:
    lost: dict[str, int] = defaultdict(int)
    doubled: dict[str, int] = defaultdict(int)
    times = storm.outcomes.times()
    for name in storm.findings.doubled:
        doubled[_last_fault(storm, times[name][1])] += 1
    for _ in storm.findings.lost:
        lost[UNKNOWN_FAULT] += 1
    return lost, doubled


def _last_fault(storm: Storm, time_ms: int) -> str:
    before = [one.fault for one in storm.injections if one.at_ms <= time_ms]
    return before[-1] if before else UNKNOWN_FAULT


def table(rows: Iterable[Row]) -> str:
    """The rows as plain text, columns aligned."""
    cells = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    lines = [
        "  ".join(_aligned(text, width, n) for n, (text, width) in enumerate(zip(line, widths, strict=True)))
        for line in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def _aligned(text: str, width: int, column: int) -> str:
    return text.ljust(width) if column == 0 else text.rjust(width)


def _cells(row: Row) -> tuple[str, ...]:
    name = f"{row.fault} ({row.note})" if row.note else row.fault
    return (name, str(row.injected), str(row.lost), str(row.doubled), _seconds(row.recovery_s), _seconds(row.longest_s))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def summary(storm: Storm) -> str:
    """One line on a run."""
    dead = len(storm.outcomes.letters)
    return (
        f"seed {storm.plan.seed}: {storm.plan.snapshots} snapshots, {len(storm.injections)} faults, "
        f"{storm.resends} resends, {dead} dead letters, "
        f"{len(storm.findings.lost)} lost, {len(storm.findings.doubled)} doubled, in {storm.duration_s:.0f} s"
    )


def storm_figures(storm: Storm) -> dict[str, Any]:
    """The run as plain data."""
    return {
        "plan": asdict(storm.plan),
        "summary": summary(storm),
        "wrong": storm.faults(),
        "deaths": dict(storm.deaths),
        "duration_s": round(storm.duration_s, 1),
    }


@dataclass
class Report:
    """Rows of single faults and whole storms, gathered over a run."""

    seed: int | None = None
    rows: list[Row] = field(default_factory=list)
    storms: list[Storm] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Note what one fault did."""
        self.rows.append(row)

    def add_storm(self, storm: Storm) -> None:
        """Note what a storm did, fault by fault."""
        self.storms.append(storm)
        self.rows += storm_rows(storm)

    def text(self) -> str:
        """The seed, the table, and a line per storm."""
        return "\n".join([f"seed {self.seed}", table(self.rows), STORM_NOTE, *map(summary, self.storms)])

    def write(self, path: Path) -> None:
        """Keep the figures as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        storms = [storm_figures(storm) for storm in self.storms]
        figures = {"seed": self.seed, "faults": [asdict(row) for row in self.rows], "storms": storms}
        path.write_text(json.dumps(figures, indent=1) + "\n")

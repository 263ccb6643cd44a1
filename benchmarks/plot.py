"""The plot of the replay: cost against recall, one panel a budget."""

from pathlib import Path
from typing import Any, Final

OURS: Final = "steady"
PANEL: Final = (6.0, 4.5)  # inches


def draw(rows: list[dict[str, Any]], folder: Path) -> None:
    """Draw the rows as PNG and SVG; ``ImportError`` without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    budgets = sorted({row["budget"] for row in rows})
    size = (PANEL[0] * len(budgets), PANEL[1])
    figure, axes = pyplot.subplots(1, len(budgets), figsize=size, squeeze=False, sharex=True, sharey=True)
    for axis, budget in zip(axes[0], budgets, strict=True):
        _draw_panel(axis, [row for row in rows if row["budget"] == budget])
    axes[0][0].set_ylabel("evidence recall, %")
    figure.tight_layout()
    for suffix in ("png", "svg"):
        figure.savefig(folder / f"replay.{suffix}", metadata={"Date": None} if suffix == "svg" else None)


def _draw_panel(axis: Any, rows: list[dict[str, Any]]) -> None:
    for number, row in enumerate(sorted(rows, key=lambda row: (row["recall"], row["cost"]))):
        is_ours = row["policy"] == OURS
        place = (row["cost"], 100 * row["recall"])
        axis.scatter(*place, s=70 if is_ours else 30, color="C3" if is_ours else "C0")
        # Neighbours are labelled above and below by turns.
        offset = (5, 5) if number % 2 else (5, -11)
        axis.annotate(row["policy"], place, xytext=offset, textcoords="offset points", fontsize=8)
    head = rows[0]
    axis.set_title(f"budget {head['budget']:,} (n = {head['conversations']} conversations, {head['calls']} calls)")
    axis.set_xlabel("input cost, no pruning = 1")
    axis.margins(x=0.25, y=0.08)
    axis.grid(alpha=0.3)

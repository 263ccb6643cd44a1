"""docs/faults.md: every row of the catalogues is there, and every test it names exists."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "faults.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:[a-z_]+/)*)([a-z_]+)::(\w+)`", PAGE.replace("`faults/storm::name`", ""))))
ROWS = {"F": 42, "B": 74, "S": 14}


@cache
def names_in(path: Path) -> frozenset[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.parse(path.read_text()).body if isinstance(node, functions))


def rows_of(kind: str) -> set[int]:
    """The numbers in the first column, with ranges written out."""
    cells = re.findall(rf"^\| ({kind}[^|]*) \|", PAGE, re.MULTILINE)
    found = set()
    for part in ", ".join(cells).split(", "):
        first, _, last = part.replace(kind, "").partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


@pytest.mark.parametrize(("folder", "file", "name"), NAMED, ids=lambda part: part)
def test_a_test_that_the_page_names_exists(folder: str, file: str, name: str) -> None:
    assert f"test_{name}" in names_in(ROOT / "tests" / folder / f"test_{file}.py")


@pytest.mark.parametrize(("kind", "count"), ROWS.items())
def test_every_row_has_its_place(kind: str, count: int) -> None:
    assert set(range(1, count + 1)) <= rows_of(kind)


def test_a_row_without_a_test_says_why() -> None:
    lines = [
        line for line in PAGE.splitlines() if re.match(r"\| [FBS]?[0-9, BFS-]*\| ", line) or line.startswith("| |")
    ]

    assert len(NAMED) > 50
    assert [line for line in lines if "::" not in line and "| none" not in line] == []
    assert [line for line in PAGE.splitlines() if line.startswith("| ") and line.count("|") != 4] == []


def test_the_page_is_linked() -> None:
    assert "(faults.md)" in (ROOT / "docs" / "operations.md").read_text()

"""docs/extending.md is run as it stands: files added and changes made in a copy of the packages, its tests pass."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "extending.md"
COPIED = ("contracts", "pipeline", "tests/pipeline")
BLOCK = re.compile(r"^```(?P<kind>python|diff) (?P<path>\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(match["kind"], match["path"], match["text"]) for match in BLOCK.finditer(PAGE.read_text())]
TIMEOUT_S = 300


def changed(text: str, diff: str) -> str:
    """A text with one change made: the lines of ``diff`` without `+` become those without `-`, wherever they stand."""
    lines = diff.splitlines()
    before = "\n".join(line[1:] for line in lines if line[0] in " -")
    after = "\n".join(line[1:] for line in lines if line[0] in " +")
    if text.count(before) != 1:
        raise ValueError(f"{before!r} stands {text.count(before)} times in the file")
    return text.replace(before, after)


def extend(target: Path) -> list[str]:
    """Do all that the page says to a copy of the packages; the test files it adds."""
    for name in COPIED:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "tests" / "__init__.py").touch()
    for kind, path, text in BLOCKS:
        file = target / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text if kind == "python" else changed(file.read_text(), text))
    return [path for _, path, _ in BLOCKS if path.startswith("tests/")]


def run_python(*arguments: str, cwd: Path) -> None:
    environ = os.environ | {"PYTHONPATH": str(cwd), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    target = tmp_path_factory.mktemp("extended")
    return target, extend(target)


def test_the_page_adds_a_strategy_and_a_dialect() -> None:
    added = [path for kind, path, _ in BLOCKS if kind == "python"]

    assert [Path(path).parent.name for path in added if path.startswith("pipeline/")] == ["strategies", "dialects"]


def test_each_is_one_new_file_one_tuple_and_one_test_file() -> None:
    added = sorted(path for kind, path, _ in BLOCKS if kind == "python")
    changed = {path for kind, path, _ in BLOCKS if kind == "diff"}

    assert added == [
        "pipeline/dialects/transcript.py",
        "pipeline/strategies/bookends.py",
        "tests/pipeline/dialects/test_transcript.py",
        "tests/pipeline/strategies/test_bookends.py",
    ]
    assert changed == {"pipeline/dialects/__init__.py", "pipeline/strategies/__init__.py"}


def test_the_tests_on_the_page_pass(extended: tuple[Path, list[str]]) -> None:
    target, test_files = extended

    run_python(
        "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider", *test_files, cwd=target
    )


def test_a_new_strategy_is_held_to_the_promises_without_a_line_for_it(extended: tuple[Path, list[str]]) -> None:
    target, _ = extended

    run_python("-c", "from tests.pipeline.policies import POLICIES; assert 'bookends' in POLICIES", cwd=target)


def test_what_the_page_adds_is_as_clean_as_the_rest(extended: tuple[Path, list[str]]) -> None:
    target, _ = extended
    added = [path for kind, path, _ in BLOCKS if kind == "python"]

    run_python("-m", "ruff", "check", "--no-cache", "--config", str(ROOT / "pyproject.toml"), *added, cwd=target)


def test_a_change_must_fit_exactly_one_place() -> None:
    assert changed("a\nb\n", " a\n+c\n") == "a\nc\nb\n"
    with pytest.raises(ValueError, match="stands 2 times"):
        changed("a\na\n", "-a\n+c\n")

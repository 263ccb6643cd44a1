"""The README's commands do what they say: every block marked ``sh test`` runs as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"^(?P<fence>`{3,})(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=fence)`*[ \t]*$", re.MULTILINE | re.DOTALL)
BLOCK_TIMEOUT_S = 60


def find_blocks(text: str) -> list[tuple[int, str]]:
    """The line and the text of every block that is to be run."""
    return [
        (text.count("\n", 0, match.start()) + 1, match["text"])
        for match in BLOCK.finditer(text)
        if match["info"].strip() == "sh test"
    ]


BLOCKS = find_blocks(README.read_text()) if README.exists() else []


def test_the_readme_has_blocks_to_run() -> None:
    assert BLOCKS


@pytest.mark.parametrize("script", [pytest.param(text, id=f"line-{line}") for line, text in BLOCKS])
def test_a_block_of_the_readme_runs(script: str, tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SECATEUR_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env=environ | {"PATH": path, "SECATEUR_DATA_DIR": str(tmp_path / "data")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BLOCK_TIMEOUT_S,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_only_blocks_marked_exactly_are_run() -> None:
    quoted = "````md\n```sh test\nquoted\n```\n````\n"
    text = f"# A\n```sh\nno\n```\n```sh test\nyes\n```\ntext\n{quoted}```sh test\nalso\n```\n"

    assert find_blocks(text) == [(5, "yes\n"), (14, "also\n")]

"""The project's own promises: its targets exist, its pins are only pins, no file names a package registry."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TARGETS = ("help", "demo", "test", "check", "bench", "corpus", "faults", "nightly", "clean")
REGISTRIES = [
    f"{name}.{top}"
    for name, top in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("deb.debian", "org"),
        ("docker", "io"),
    )
]
PIN = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+( ; .+)?")


def project_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def constraint_lines() -> list[str]:
    return (ROOT / "constraints.txt").read_text().splitlines()


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("target", TARGETS)
def test_the_makefile_has_the_target(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text()

    assert re.search(rf"^{target}:.*## \w", makefile, re.MULTILINE)


def test_constraints_hold_pins_and_nothing_else() -> None:
    assert [line for line in constraint_lines() if not PIN.fullmatch(line)] == []


def test_every_direct_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    names = {normalized(re.split(r"[\[<>=;! ]", requirement)[0]) for requirement in required} - {project["name"]}

    assert names <= {normalized(line.partition("==")[0]) for line in constraint_lines()}


def test_no_file_names_a_package_registry() -> None:
    named = [
        (path.relative_to(ROOT).as_posix(), host)
        for path in project_files()
        for host in REGISTRIES
        if host.encode() in path.read_bytes()
    ]

    assert named == []


def test_an_interpreter_that_cannot_run_is_refused_in_one_line(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())

    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}

    made = subprocess.run(["make", "test", "PYTHON=false"], cwd=tmp_path, env=environ, capture_output=True, text=True)

    assert made.returncode == 2
    assert made.stderr.splitlines()[0].startswith("Secateur needs Python 3.11 or newer")
    assert not (tmp_path / ".venv").exists()

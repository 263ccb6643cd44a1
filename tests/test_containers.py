"""The container files name only commands, ports, paths and variables that the project really has."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
WORKER: dict[str, Any] = COMPOSE["services"]["worker"]
VALKEY: dict[str, Any] = COMPOSE["services"]["valkey"]


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", DOCKERFILE.replace("\\\n", " "), re.MULTILINE)


def probed_paths() -> set[str]:
    return set(re.findall(r"http://127\.0\.0\.1:[^/]+(/\w+)", DOCKERFILE + COMPOSE_TEXT))


def exec_forms() -> Iterator[list[str]]:
    """Every probe that runs Python, as the list that is executed."""
    yield json.loads(instructions("HEALTHCHECK")[0].partition("CMD ")[2])
    yield WORKER["healthcheck"]["test"][1:]


def test_every_variable_is_a_setting() -> None:
    from service.settings import VARIABLES

    named = set(re.findall(r"SECATEUR_\w+", DOCKERFILE + COMPOSE_TEXT))

    assert named
    assert named <= VARIABLES


@pytest.mark.parametrize("arguments", [json.loads(instructions("CMD")[0]), WORKER["command"]], ids=["image", "compose"])
def test_every_subcommand_exists(arguments: list[str]) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "service.cli", *arguments, "--help"], cwd=ROOT, capture_output=True, text=True
    )

    assert shown.returncode == 0, shown.stderr


def test_the_entry_point_is_the_console_script() -> None:
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["secateur"]
    assert '\nsecateur = "service.cli:main"\n' in (ROOT / "pyproject.toml").read_text()


def test_everything_copied_exists_and_reaches_the_build() -> None:
    sources = [source for line in instructions("COPY") for source in line.split()[:-1]]
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert all((ROOT / source).exists() for source in sources)
    assert set(sources) <= let_through


def test_every_probed_path_is_served() -> None:
    served = "\n".join(path.read_text() for path in (ROOT / "service").rglob("*.py"))

    assert probed_paths() == {"/live", "/ready"}
    assert [path for path in probed_paths() if f'"{path}"' not in served] == []


@pytest.mark.parametrize("command", list(exec_forms()), ids=["image", "compose"])
def test_the_probes_are_python_that_compiles(command: list[str]) -> None:
    assert command[:2] == ["python", "-c"]
    compile(command[2], "probe", "exec")


def test_all_parts_agree_on_the_http_port() -> None:
    port = WORKER["environment"]["SECATEUR_HTTP_PORT"]

    assert instructions("EXPOSE") == [port]
    assert f"SECATEUR_HTTP_PORT={port}" in DOCKERFILE
    assert WORKER["expose"] == [port]
    assert f"127.0.0.1:{port}/" in WORKER["healthcheck"]["test"][-1]


def test_workers_scale_restart_and_run_without_privileges() -> None:
    assert not {"container_name", "ports", "hostname"} & WORKER.keys()
    assert WORKER["restart"] == "always"
    assert WORKER["user"] == "secateur"
    assert instructions("USER") == ["secateur"]
    assert "useradd" in DOCKERFILE


def test_workers_wait_for_a_healthy_server_and_find_it_by_name() -> None:
    (server,) = WORKER["depends_on"]

    assert WORKER["depends_on"][server] == {"condition": "service_healthy"}
    assert WORKER["environment"]["SECATEUR_REDIS_URL"] == f"redis://{server}:6379/0"
    assert "healthcheck" in COMPOSE["services"][server]


def test_the_server_keeps_its_data_and_evicts_nothing() -> None:
    command = VALKEY["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))

    assert options["--appendonly"] == "yes"
    assert options["--appendfsync"] == "everysec"
    assert options["--maxmemory-policy"] == "noeviction"
    assert [volume.partition(":")[0] for volume in VALKEY["volumes"]] == list(COMPOSE["volumes"])

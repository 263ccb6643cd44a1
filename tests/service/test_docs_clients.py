"""What docs/clients.md says works: every block marked as a test runs as it stands, beside a real worker."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from service.keys import Keys
from tests.integration.workers import WORKER, running

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^```(sh|python) test\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(match[1], match[2]) for match in BLOCK.finditer((ROOT / "docs" / "clients.md").read_text())]
BLOCK_TIMEOUT_S = 60

needs_redis_cli = pytest.mark.skipif(
    not shutil.which("redis-cli"), reason="redis-cli is not installed (apt install redis-tools)"
)


@pytest.fixture
def worker(redis_url: str, tmp_path: Path) -> Iterator[None]:
    with running(WORKER, redis_url, tmp_path / "log", block_ms="200"):
        yield


def run_block(command: list[str], text: str, url: str, directory: Path) -> "subprocess.CompletedProcess[str]":
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SECATEUR_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    (directory / "admit.lua").write_bytes((ROOT / "service" / "admit.lua").read_bytes())
    return subprocess.run(
        [*command, text],
        cwd=directory,
        env=environ | {"PATH": path, "SECATEUR_REDIS_URL": url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BLOCK_TIMEOUT_S,
        check=False,
    )


def test_the_page_has_blocks_of_both_kinds() -> None:
    assert {kind for kind, _ in BLOCKS} == {"sh", "python"}


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("text", [text for kind, text in BLOCKS if kind == "python"])
def test_a_python_block_runs(text: str, redis_url: str, tmp_path: Path) -> None:
    done = run_block([sys.executable, "-W", "error", "-c"], text, redis_url, tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] in ("unchanged", "pruned")


@needs_redis_cli
@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("text", [text for kind, text in BLOCKS if kind == "sh"])
def test_a_shell_block_runs(text: str, redis_url: str, tmp_path: Path) -> None:
    done = run_block(["bash", "-euo", "pipefail", "-c"], text, redis_url, tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    with redis.Redis.from_url(redis_url) as client:
        assert list(client.scan_iter(Keys("main").results("*"))) == []

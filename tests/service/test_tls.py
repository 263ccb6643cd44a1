"""TLS: a rediss:// URL is all it takes, and a server that cannot prove its name is not talked to."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import redis

from service import embedded
from service.cli import main
from service.client import Secateur
from service.keys import Keys
from tests.integration.workers import WORKER, running, wait_until

PASSWORD = "tls-test-password"
PATIENCE_S = 30.0

# The embedded server is built without TLS.
pytestmark = [
    pytest.mark.debian,
    pytest.mark.skipif(not shutil.which("redis-server"), reason="Debian's redis-server is not installed"),
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed"),
]


class Secured(NamedTuple):
    """A server that speaks TLS only."""

    port: int
    directory: Path

    def url(self, *, ca: str = "ca", host: str = "127.0.0.1") -> str:
        options = f"?ssl_ca_certs={self.directory / ca}.pem" if ca else ""
        return f"rediss://:{PASSWORD}@{host}:{self.port}/0{options}"


def make_ca(directory: Path, name: str) -> None:
    run_openssl(
        directory, f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"
    )


def make_certificate(directory: Path, name: str, ca: str, alternative: str) -> None:
    (directory / f"{name}.ext").write_text(f"subjectAltName={alternative}\n")
    run_openssl(directory, f"req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr")
    run_openssl(
        directory,
        f"x509 -req -in {name}.csr -CA {ca}.pem -CAkey {ca}.key -CAcreateserial -days 2 -extfile {name}.ext "
        f"-out {name}.pem",
    )


def run_openssl(directory: Path, arguments: str) -> None:
    subprocess.run(["openssl", *arguments.split()], cwd=directory, check=True, capture_output=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("tls")
    for name in ("ca", "stranger"):
        make_ca(directory, name)
    make_certificate(directory, "server", "ca", "IP:127.0.0.1")
    server = Secured(embedded._free_port(), directory)
    config = (
        f"bind 127.0.0.1\nport 0\ntls-port {server.port}\ntls-auth-clients no\nrequirepass {PASSWORD}\nappendonly yes\n"
        f"tls-cert-file {directory}/server.pem\ntls-key-file {directory}/server.key\n"
        f"tls-ca-cert-file {directory}/ca.pem\n"
    )
    process = embedded._spawn(str(shutil.which("redis-server")), config, directory)
    try:
        assert embedded._answers(server.url(), while_true=lambda: process.poll() is None)
        yield server
    finally:
        process.kill()
        process.wait()


def test_workers_commands_and_clients_work_over_tls(
    server: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SECATEUR_REDIS_URL", server.url())
    file = tmp_path / "in.jsonl"
    file.write_text(json.dumps({"conversation_id": "c", "messages": []}) + "\n")

    async def prune() -> str:
        async with Secateur(server.url(), timeout_s=PATIENCE_S) as secateur:
            return (await secateur.prune([{"role": "user", "content": "hello"}])).status

    with running(WORKER, server.url(), tmp_path / "log", block_ms="200", workers="2") as worker:
        assert main(["publish", str(file)]) == 0
        assert asyncio.run(prune()) == "unchanged"
        with redis.Redis.from_url(server.url()) as client:
            wait_until(lambda: client.xlen(Keys("main").pruned) == 1, "the published snapshot's result")
        assert main(["audit"]) == 0
        assert worker.terminate() == 0

    out, err = capfd.readouterr()
    assert PASSWORD not in out + err + worker.log.read_text()


@pytest.mark.parametrize(
    "wrong",
    [{"ca": "stranger"}, {"ca": ""}, {"host": "localhost"}],
    ids=["another CA", "the system's CAs", "another name"],
)
def test_a_server_that_cannot_prove_its_name_is_not_talked_to(
    server: Secured,
    tmp_path: Path,
    wrong: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SECATEUR_REDIS_URL", server.url(**wrong))

    async def prune() -> list[str]:
        async with Secateur(server.url(**wrong), timeout_s=0.5) as secateur:
            return (await secateur.prune([])).reason

    assert main(["audit"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert PASSWORD not in err
    assert asyncio.run(prune()) == ["server_away"]
    with running(WORKER, server.url(**wrong), tmp_path / "log") as worker:
        assert worker.wait() == 2
        (line,) = worker.log.read_text().splitlines()
        assert "certificate" in line
        assert PASSWORD not in line


def test_the_port_speaks_nothing_but_tls(server: Secured) -> None:
    with (
        redis.Redis.from_url(server.url(ca="").replace("rediss", "redis"), socket_timeout=1) as client,
        pytest.raises(redis.RedisError),
    ):
        client.ping()

"""Security: each role of docs/security.md can do its work and nothing else; no input is ever obeyed or evaluated."""

import ast
import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from faststream.redis.parser import BinaryMessageFormatV1
from redis.exceptions import NoPermissionError, ResponseError

from service import embedded
from service.cli import main
from service.client import Secateur
from service.keys import GROUP, Keys
from tests.integration.workers import WORKER, running, snapshot, wait_until

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("contracts", "pipeline", "service")
USERS = re.search(r"^```acl\n(.*?)^```$", (ROOT / "docs" / "security.md").read_text(), re.MULTILINE | re.DOTALL)
ADMIN = "user admin on >admin-password ~* &* +@all"
ROLES = ("producer", "runner", "worker", "operator")
KEYS = Keys("main")
PATIENCE_S = 30.0


class Guarded(NamedTuple):
    """A server that knows the documented users."""

    port: int

    def url(self, user: str) -> str:
        return f"redis://{user}:{user}-password@127.0.0.1:{self.port}/0"

    def client(self, user: str) -> "redis.Redis":
        return redis.Redis.from_url(self.url(user))


@contextmanager
def guarded(binary: str, directory: Path) -> Iterator[Guarded]:
    assert USERS is not None
    server = Guarded(embedded._free_port())
    config = f"bind 127.0.0.1\nport {server.port}\nappendonly yes\nenable-debug-command yes\n{USERS[1]}{ADMIN}\n"
    process = embedded._spawn(binary, config, directory)
    try:
        assert embedded._answers(server.url("admin"), while_true=lambda: process.poll() is None)
        yield server
    finally:
        process.kill()
        process.wait()


@pytest.fixture(
    scope="module",
    params=[
        "embedded",
        pytest.param(
            "redis-server",
            marks=[
                pytest.mark.debian,
                pytest.mark.skipif(not shutil.which("redis-server"), reason="Debian's redis-server is not installed"),
            ],
        ),
    ],
)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    binary = embedded._find_binary() if request.param == "embedded" else str(shutil.which("redis-server"))
    with guarded(binary, tmp_path_factory.mktemp("guarded")) as server:
        yield server


@pytest.fixture
def empty(server: Guarded) -> Guarded:
    with server.client("admin") as admin:
        admin.flushall()
        admin.acl_log_reset()
    return server


def test_every_role_can_do_its_work(empty: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "in.jsonl"
    bodies = [{"conversation_id": "c", "snapshot_id": f"s-{n}", "sequence": n, "messages": []} for n in range(20)]
    bad = {"conversation_id": "c", "snapshot_id": "bad", "messages": [], "policy": {"no": "such"}}
    file.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    settings = {"block_ms": "200", "claim_after_ms": "300", "blob_above_bytes": "1", "http_port": "0"}
    with running(WORKER, empty.url("worker"), tmp_path / "log", **settings) as worker:
        monkeypatch.setenv("SECATEUR_REDIS_URL", empty.url("producer"))
        assert main(["publish", str(file)]) == 0
        assert main(["publish", "--batch", str(file)]) == 0
        with empty.client("producer") as producer:
            producer.xadd(KEYS.snapshots, {"__data__": json.dumps(bad)})
        answers = asyncio.run(prune_some(empty.url("runner")))
        with empty.client("operator") as operator:
            wait_until(lambda: not any(operator.xlen(stream) for stream in KEYS.inputs), "every entry settled")
        monkeypatch.setenv("SECATEUR_REDIS_URL", empty.url("operator"))
        assert main(["dead", "list"]) == 0
        assert main(["dead", "replay", "--all"]) == 0
        with empty.client("operator") as operator:
            wait_until(lambda: not any(operator.xlen(stream) for stream in KEYS.inputs), "every entry settled")
        assert main(["audit"]) == 0
        assert main(["tail", "--from-start", "--count", "1"]) == 0
        assert worker.terminate() == 0

    assert [status for status, _ in answers] == ["unchanged"] * 5 + ["failed_open"]
    assert answers[-1][1] == ["bad_policy"]
    with empty.client("admin") as admin:
        denied: Any = admin.acl_log()
    # Asked for in vain and done without: a client's own name and version, and in mode `fast` the configuration.
    assert {row["object"] for row in denied} <= {"client|setinfo", "config|get"}
    assert "NoPermission" not in worker.log.read_text()


def test_a_worker_may_take_over_what_a_dead_one_left(empty: Guarded, tmp_path: Path) -> None:
    with empty.client("admin") as admin:
        admin.xgroup_create(KEYS.snapshots, GROUP, id="0", mkstream=True)
        for number in range(10):
            admin.xadd(KEYS.snapshots, {"__data__": snapshot(number)})
        admin.xreadgroup(GROUP, "dead-worker", {KEYS.snapshots: ">"}, count=10)
        with running(WORKER, empty.url("worker"), tmp_path / "log", block_ms="200", claim_after_ms="100"):
            wait_until(lambda: not admin.xlen(KEYS.snapshots), "every entry settled")
        denied: Any = admin.acl_log()

        assert {row["object"] for row in denied} <= {"client|setinfo", "config|get"}
        assert admin.xlen(KEYS.metrics) == 10
        assert admin.xpending(KEYS.snapshots, GROUP)["pending"] == 0


SCRIPTS = {
    "producer": {"admit"},
    "runner": {"admit"},
    "worker": {"settle", "claim", "forgive", "renew", "retire", "census"},
    "operator": {"page", "replay", "census"},
}
CALL = re.compile(r"redis\.p?call\(\s*'(\w+)'(?:, '(\w+)')?")
CONTAINERS = {"XGROUP", "XINFO", "MEMORY"}


def commands_of(script: Path) -> set[str]:
    """The commands that a script calls, as ACL rules name them."""
    calls = CALL.findall(script.read_text())
    return {f"{name}|{sub}".lower() if name in CONTAINERS else name.lower() for name, sub in calls}


def test_every_script_belongs_to_a_role() -> None:
    assert {path.stem for path in (ROOT / "service").glob("*.lua")} == set().union(*SCRIPTS.values())


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_run_all_commands_of_its_scripts(role: str) -> None:
    assert USERS is not None
    (rules,) = [line for line in USERS[1].splitlines() if line.startswith(f"user {role} ")]
    granted = set(re.findall(r"\+([\w|]+)", rules))
    needed = set().union(*(commands_of(ROOT / "service" / f"{name}.lua") for name in SCRIPTS[role]))

    assert len(needed) > 3
    assert needed - granted == set()


async def prune_some(url: str) -> list[tuple[str, list[str]]]:
    messages = [{"role": "user", "content": "hello"}]
    async with Secateur(url, timeout_s=PATIENCE_S) as secateur:
        answers = await asyncio.gather(
            *(secateur.prune(messages) for _ in range(5)), secateur.prune(messages, policy={"no": "such"})
        )
    return [(answer.status, answer.reason) for answer in answers]


FOREIGN = "{other}:snapshots"
DENIED_TO_ALL = [
    "KEYS *",
    "FLUSHALL",
    "FLUSHDB",
    "CONFIG GET *",
    "CONFIG SET maxmemory 1",
    "MONITOR",
    "SLOWLOG GET",
    "CLIENT LIST",
    "CLIENT KILL ID 1",
    "DEBUG SLEEP 0",
    "SHUTDOWN NOSAVE",
    "ACL LIST",
    "ACL SETUSER worker +@all",
    "RENAME {main}:snapshots {main}:other",
    "COPY {main}:dead {main}:other",
    "RESTORE {main}:x 0 x",
    "DUMP {main}:dead",
    "EVAL return 0",
    "FUNCTION LIST",
    "PUBLISH channel text",
    "SUBSCRIBE channel",
    "REPLICAOF NO ONE",
    "XTRIM {main}:snapshots MAXLEN 0",
    "DEL {main}:snapshots",
    "UNLINK {main}:dead",
    "EXPIRE {main}:snapshots 1",
    "SET {main}:snapshots x",
    "SET {main}:dead x",
    "SET {other}:done:x x",
    f"XADD {FOREIGN} * a b",
    f"XLEN {FOREIGN}",
    f"XRANGE {FOREIGN} - +",
    f"XREAD STREAMS {FOREIGN} 0",
    "XREAD STREAMS {main}:pruned {other}:pruned 0 0",
    f"XREADGROUP NOACK GROUP g STREAMS STREAMS {FOREIGN} >",
    f"XINFO STREAM {FOREIGN}",
]
DENIED = {
    "producer": [
        "XRANGE {main}:snapshots - +",
        "XREAD STREAMS {main}:snapshots 0",
        "XREADGROUP GROUP secateur me STREAMS {main}:snapshots >",
        "XDEL {main}:snapshots 1-1",
        "XACK {main}:snapshots secateur 1-1",
        "XRANGE {main}:pruned - +",
        "XRANGE {main}:dead - +",
        "XREAD STREAMS {main}:inbox:x 0",
        "XADD {main}:pruned * a b",
        "XADD {main}:metrics * a b",
        "XADD {main}:dead * a b",
        "SET {main}:done:x x",
        "GET {main}:latest:x",
        "GET {main}:blob:x",
        "SCAN 0",
        "INFO",
    ],
    "runner": [
        "XADD {main}:snapshots:batch * a b",
        "XRANGE {main}:snapshots - +",
        "XREADGROUP GROUP secateur me STREAMS {main}:snapshots >",
        "XDEL {main}:snapshots 1-1",
        "XDEL {main}:pruned 1-1",
        "XADD {main}:inbox:x * a b",
        "XADD {main}:pruned * a b",
        "XRANGE {main}:dead - +",
        "XRANGE {main}:metrics - +",
        "SET {main}:done:x x",
        "SET {main}:blob:x x",
        "SCAN 0",
        "INFO",
    ],
    "worker": ["SCAN 0", "SET {main}:pruned x", "HSET {main}:attempts a b", "XGROUP DESTROY {main}:snapshots secateur"],
    "operator": [
        "XADD {main}:pruned * a b",
        "XADD {main}:metrics * a b",
        "XADD {main}:dead * a b",
        "XDEL {main}:snapshots 1-1",
        "XDEL {main}:pruned 1-1",
        "XREADGROUP GROUP secateur me STREAMS {main}:snapshots >",
        "SET {main}:done:x x",
        "HSET {main}:attempts a b",
    ],
}


@pytest.mark.parametrize(
    ("role", "command"),
    [
        pytest.param(role, command, id=f"{role}: {command}")
        for role in ROLES
        for command in DENIED_TO_ALL + DENIED[role]
    ],
)
def test_a_role_is_refused_what_is_not_its_work(server: Guarded, role: str, command: str) -> None:
    arguments = command.split()
    if arguments[0] == "EVAL":
        arguments = ["EVAL", "return 0", "0"]
    with server.client(role) as client, pytest.raises((NoPermissionError, ResponseError)) as refused:
        client.execute_command(*arguments)

    assert "NOPERM" in str(refused.value) or isinstance(refused.value, NoPermissionError)


@pytest.mark.parametrize("role", ROLES)
def test_a_script_reaches_no_further_than_its_user(server: Guarded, role: str) -> None:
    with server.client("admin") as admin:
        admin.set("{main}:foreign", "secret")
        admin.set("{other}:foreign", "secret")
    text = "return redis.call('GET', '{other}:foreign')"
    with server.client(role) as client:
        script = client.script_load(text)
        with pytest.raises(ResponseError, match=r"(?i)permission|can't access|can't run"):
            client.evalsha(script, 1, KEYS.snapshots)


def test_nobody_comes_in_without_a_password(server: Guarded) -> None:
    with (
        redis.Redis(port=server.port) as client,
        pytest.raises((redis.AuthenticationError, NoPermissionError)),
    ):
        client.ping()


def test_a_producer_cannot_choose_where_an_answer_goes(redis_url: str, tmp_path: Path) -> None:
    body: dict[str, Any] = {"conversation_id": "c", "messages": [{"role": "user", "content": "CANARY-9f3"}]}
    envelope = asyncio.run(
        BinaryMessageFormatV1.encode(
            message=body, reply_to="evil", headers={"reply_to": "evil"}, correlation_id="1", serializer=None
        )
    )
    asyncapi = {"data": json.dumps(body), "headers": {"reply_to": "evil", "correlation_id": "1"}}
    with redis.Redis.from_url(redis_url) as client:
        client.config_resetstat()
        channel = client.pubsub()
        channel.subscribe("evil")
        client.xadd(KEYS.snapshots, {"__data__": json.dumps(body | {"reply_to": "evil"}), "reply_to": "evil"})
        client.xadd(KEYS.snapshots, {"__data__": envelope})
        client.xadd(KEYS.snapshots, {"__data__": json.dumps(asyncapi)})
        with running(WORKER, redis_url, tmp_path / "log", block_ms="200"):
            wait_until(lambda: client.xlen(KEYS.metrics) == 3, "three outcomes")
        heard = list(iter(lambda: channel.get_message(timeout=0.01), None))
        stats: Any = client.info("commandstats")
        channel.close()

        assert [message["type"] for message in heard] == ["subscribe"]
        assert not {"cmdstat_publish", "cmdstat_spublish"} & stats.keys()
        assert client.xlen(KEYS.pruned) == 1
        assert client.xlen(KEYS.dead) == 2
        assert {key.decode() for key in client.scan_iter()} == {
            KEYS.snapshots,
            KEYS.batch,
            KEYS.pruned,
            KEYS.metrics,
            KEYS.dead,
        }
        assert client.xpending(KEYS.snapshots, GROUP)["pending"] == 0


FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "yaml", "jsonpickle"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


def find_dangers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in FORBIDDEN_MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            yield node.func.id
        elif isinstance(node, ast.keyword) and node.arg == "shell" and not _is_false(node.value):
            yield "shell="


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def test_nothing_here_evaluates_or_unpickles() -> None:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = {
        f"{path.relative_to(ROOT)}: {danger}" for path in files for danger in find_dangers(ast.parse(path.read_text()))
    }

    assert len(files) > 50
    assert found == set()


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from yaml import load",
        "import marshal as m",
        "eval('1')",
        "exec(text)",
        "__import__('os')",
        "subprocess.run(text, shell=True)",
    ],
)
def test_the_check_finds_what_it_looks_for(text: str) -> None:
    assert list(find_dangers(ast.parse(text)))


def test_no_command_shows_the_password_of_a_url(empty: Guarded, capfd: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", "dead", "show", "1-1"],
        env={"PATH": "", "SECATEUR_REDIS_URL": f"redis://operator:hush-1@127.0.0.1:{empty.port}/0?password=hush-2"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "hush" not in done.stdout + done.stderr

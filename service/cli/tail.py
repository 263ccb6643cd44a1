"""``secateur tail``: follow results as workers publish them."""

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from contracts import Pruned
from service.cli.command import add_command, add_lane, positive
from service.cli.connect import open_client, reach_server, read_settings
from service.cli.output import plain, require_reader, write_line
from service.cli.problem import Problem

if TYPE_CHECKING:
    from redis import Redis

    from service.cli.command import Commands

BLOCK_MS: Final = 1_000  # well under the client's socket timeout of 5 s
READ_COUNT: Final = 100
RETRY_S: Final = 1.0

_result = msgspec.json.Decoder(Pruned)


def register(commands: "Commands") -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "tail",
        run,
        help="follow results",
        description=(
            "Follow the results of a lane, one line each: conversation, status, messages, tokens, reasons.\n"
            "Conversation text is shown only with --json. Ctrl-C ends it."
        ),
        example="secateur tail --from-start --count 10",
    )
    add_lane(parser)
    parser.add_argument("--from-start", action="store_true", help="begin with the oldest result still in the stream")
    parser.add_argument("--count", type=positive, metavar="N", help="stop after N results")
    parser.add_argument("--json", action="store_true", help="print each result as the JSON it is")


def run(options: argparse.Namespace) -> int:
    """Print results until there are enough or the user has seen enough."""
    from service.keys import Keys

    settings = read_settings(lane=options.lane)
    _refuse_without_server(settings)
    with reach_server(settings) as url, open_client(url) as client:
        bodies = follow(client, Keys(settings.lane).pruned, "0" if options.from_start else "$")
        for body in itertools.islice(bodies, options.count):
            write_line(body if options.json else describe(body).encode())
            sys.stdout.flush()
    return 0


def follow(client: "Redis", stream: str, last_id: str) -> Iterator[bytes]:
    """Every result after ``last_id``, for ever; a server that restarts is waited for."""
    import redis

    seen: Any = _newest_id(client, stream) if last_id == "$" else last_id
    while True:
        require_reader()
        try:
            found: Any = client.xread({stream: seen}, count=READ_COUNT, block=BLOCK_MS)
            results = [(entry_id, _body(client, fields)) for _, entries in found for entry_id, fields in entries]
        except (redis.ConnectionError, redis.TimeoutError):
            time.sleep(RETRY_S)
            continue
        for entry_id, body in results:
            seen = entry_id
            yield body


def describe(body: bytes) -> str:
    """A result in one line, without a word of its conversation."""
    from pipeline import count_after

    try:
        result = _result.decode(body)
    except msgspec.DecodeError:
        return "(not a result)"
    after = len(result.messages) if isinstance(result.messages, list) else None
    messages = "-" if after is None else f"{after - count_after(0, result.edits)}->{after}"
    figures = f"messages {messages}  tokens {result.tokens.before}->{result.tokens.after}"
    return f"{plain(result.conversation_id)}  {result.status}  {figures}  {','.join(result.reason)}".rstrip()


def _body(client: "Redis", fields: dict[bytes, bytes]) -> bytes:
    from service.keys import BLOB_FIELD, BODY_FIELD

    if BLOB_FIELD not in fields:
        return fields.get(BODY_FIELD, b"")
    blob: Any = client.get(fields[BLOB_FIELD])
    return blob or b""  # its reader took it, or its time is over


def _newest_id(client: "Redis", stream: str) -> Any:
    # A fixed id: `$` would skip what comes between two reads.
    newest: Any = client.xrevrange(stream, count=1)
    return newest[0][0] if newest else "0"


def _refuse_without_server(settings: Any) -> None:
    from service.embedded import URL_FILE

    # A server of our own would end with us, under the feet of any worker that had found it meanwhile.
    if not settings.redis_url and not (settings.data_dir / URL_FILE).exists():
        raise Problem("no server is running: start `secateur worker` first, or set SECATEUR_REDIS_URL")

"""``secateur publish``: snapshots from files to the live or the batch stream."""

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Raw

from contracts import Refused, decode_snapshot, encode, raw
from service.cli.command import add_command, add_lane, add_policy
from service.cli.connect import open_client, reach_server, read_settings
from service.cli.policies import Source, policy_source
from service.cli.problem import Problem
from service.cli.progress import show_progress
from service.cli.records import Record, Records, Reject, as_snapshot

if TYPE_CHECKING:
    from redis import Redis

    from service.cli.command import Commands

CHUNK_ENTRIES: Final = 200
CHUNK_BYTES: Final = 4 * 2**20

_fields = msgspec.json.Decoder(dict[str, Raw])


class Ready(NamedTuple):
    """A snapshot to be added, and where it stood."""

    record: Record
    body: bytes


def register(commands: "Commands") -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "publish",
        run,
        help="add snapshots from files to a stream",
        description=(
            "Add snapshots to the stream that workers read. A file holds one JSON document (a snapshot\n"
            "or a bare messages array) or one a line; .gz and .xz are unpacked. A document that a worker\n"
            "would refuse is reported with file, line and code and left out; the exit code is then 2.\n"
            "An entry is sent once and never blindly again: give snapshots a snapshot_id to resend safely."
        ),
        example="secateur publish --batch conversations.jsonl",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="JSON or JSONL files, or - for standard input")
    parser.add_argument("--batch", action="store_true", help="to the batch stream, served after live traffic")
    add_lane(parser)
    add_policy(parser, instead_of="put into every snapshot in place of its own")


def run(options: argparse.Namespace) -> int:
    """Publish every good document and report the others."""
    from service.keys import Keys

    policy = None if options.policy is None else policy_source(options.policy)
    records = Records(options.files)
    settings = read_settings(lane=options.lane)
    keys = Keys(settings.lane)
    stream = keys.batch if options.batch else keys.snapshots
    with reach_server(settings) as url, open_client(url) as client:
        added, refused = _publish(client, stream, records, policy)
    print(f"secateur publish: {added} added to {stream}, {refused} refused", file=sys.stderr)
    return 2 if refused else 0


def prepare(record: Record, policy: Source | None) -> Ready | Reject:
    """The entry's body, or why a worker would refuse it."""
    try:
        body = as_snapshot(record.body, record.conversation_id)
        decode_snapshot(body)
    except Refused as refused:
        return Reject(record.file, record.line, refused.code, refused.detail)
    if policy is None:
        return Ready(record, body.strip())
    return Ready(record, encode(_fields.decode(body) | {"policy": raw(policy)}))


def _publish(client: "Redis", stream: str, records: Records, policy: Source | None) -> tuple[int, int]:
    added = refused = 0
    with show_progress("publish", records.bytes_total) as progress:
        for chunk in _chunks(records, policy):
            for rejected in (item for item in chunk if isinstance(item, Reject)):
                refused += 1
                print(f"secateur publish: {rejected}", file=sys.stderr)
            added += _add(client, stream, [item for item in chunk if isinstance(item, Ready)], added)
            progress.update(records.bytes_read, f"{added} added, {refused} refused")
    return added, refused


def _chunks(records: Records, policy: Source | None) -> Iterator[list[Ready | Reject]]:
    chunk: list[Ready | Reject] = []
    size = 0
    for record in records:
        item = prepare(record, policy) if isinstance(record, Record) else record
        chunk.append(item)
        size += len(item.body) if isinstance(item, Ready) else 0
        if len(chunk) >= CHUNK_ENTRIES or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    yield chunk


def _add(client: "Redis", stream: str, chunk: list[Ready], added_before: int) -> int:
    """Send one chunk once; after a broken connection nobody knows how much of it arrived."""
    import redis

    from service.keys import BODY_FIELD

    if not chunk:
        return 0
    pipeline = client.pipeline(transaction=False)
    for ready in chunk:
        pipeline.xadd(stream, {BODY_FIELD: ready.body})
    try:
        pipeline.execute()
    except (redis.ConnectionError, redis.TimeoutError) as error:
        first, last = chunk[0].record, chunk[-1].record
        raise Problem(
            f"{added_before} added, then the connection broke ({error}): {first.file}:{first.line} to "
            f"{last.file}:{last.line} may or may not have been added; look before sending them again"
        ) from error
    return len(chunk)

"""``secateur publish``: snapshots from files to the live or the batch stream."""

import argparse
import secrets
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from contracts import MAX_BODY_BYTES, Code, Refused, decode_snapshot, encode, load_policy, raw
from pipeline import check_format
from service.cli.command import add_command, add_lane, add_policy, positive
from service.cli.connect import open_client, reach_server, read_settings
from service.cli.policies import Source, policy_source
from service.cli.problem import Problem
from service.cli.progress import show_progress
from service.cli.records import Record, Records, Reject, as_snapshot
from service.fingerprint import fingerprint

if TYPE_CHECKING:
    from redis import Redis

    from service.admit import Admission
    from service.cli.command import Commands
    from service.keys import Keys
    from service.settings import Settings

    Attempt = tuple["Ready", Admission]

CHUNK_ENTRIES: Final = 200
CHUNK_BYTES: Final = 4 * 2**20
PATIENCE_S: Final = 60

_fields = msgspec.json.Decoder(dict[str, Raw])


class Ready(NamedTuple):
    """A snapshot to be added, where it stood and what it calls itself."""

    record: Record
    body: bytes
    snapshot_id: str
    fingerprint: str


class Sent(NamedTuple):
    """What one try came to; clashes are those whose id stands for another array."""

    added: int
    known: int
    clashes: list[Ready]


class Tally(NamedTuple):
    """What became of the documents so far."""

    added: int = 0
    known: int = 0
    refused: int = 0

    def __str__(self) -> str:
        known = f"{self.known} known already, " if self.known else ""
        return f"{self.added} added, {known}{self.refused} refused"


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
            "A full stream or a server that is away is waited for. A snapshot whose snapshot_id was added\n"
            "before is not added again, so the same command can be repeated; one that stands for another\n"
            "array than before is reported as other_array."
        ),
        example="secateur publish --batch conversations.jsonl",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="JSON or JSONL files, or - for standard input")
    parser.add_argument("--batch", action="store_true", help="to the batch stream, served after live traffic")
    parser.add_argument("--zstd", action="store_true", help="compress bodies of 8 KB and more (needs secateur[zstd])")
    parser.add_argument(
        "--patience",
        type=positive,
        default=PATIENCE_S,
        metavar="S",
        help=f"seconds to wait for room in the stream or for the server (default: {PATIENCE_S})",
    )
    add_lane(parser)
    add_policy(parser, instead_of="put into every snapshot in place of its own")


def run(options: argparse.Namespace) -> int:
    """Publish every good document and report the others."""
    from service.keys import Keys
    from service.packing import can_pack

    policy = None if options.policy is None else policy_source(options.policy)
    if options.zstd and not can_pack():
        raise Problem("--zstd needs the extra: pip install 'secateur[zstd]'")
    settings = read_settings(lane=options.lane)
    records = Records(options.files, settings.max_body_bytes)
    keys = Keys(settings.lane)
    stream = keys.batch if options.batch else keys.snapshots
    with reach_server(settings) as url, open_client(url, options.patience) as client:
        sender = Sender(client, keys, settings, stream, options.patience, is_packing=options.zstd)
        tally = _publish(sender, records, policy)
    known = f", {tally.known} known already" if tally.known else ""
    print(f"secateur publish: {tally.added} added to {stream}{known}, {tally.refused} refused", file=sys.stderr)
    return 2 if tally.refused else 0


def prepare(record: Record, policy: Source | None, max_bytes: int = MAX_BODY_BYTES) -> Ready | Reject:
    """The entry's body, or why a worker would refuse it."""
    try:
        body = as_snapshot(record.body, record.conversation_id, max_bytes)
        snapshot = decode_snapshot(body, max_bytes=max_bytes)
        check_format(snapshot.format)
        if policy is None:
            load_policy(snapshot.policy)
    except Refused as refused:
        return Reject(record.file, record.line, refused.code, refused.detail)
    body = body.strip() if policy is None else encode(_fields.decode(body) | {"policy": raw(policy)})
    return Ready(record, body, snapshot.snapshot_id, fingerprint(snapshot.messages))


def _publish(sender: "Sender", records: Records, policy: Source | None) -> Tally:
    tally = Tally()
    with show_progress("publish", records.bytes_total) as progress:
        for chunk in _chunks(records, policy):
            rejects = [item for item in chunk if isinstance(item, Reject)]
            tally = tally._replace(refused=tally.refused + _report(rejects))
            for sent in sender.send([item for item in chunk if isinstance(item, Ready)]):
                clashes = [_clash(ready) for ready in sent.clashes]
                tally = Tally(tally.added + sent.added, tally.known + sent.known, tally.refused + _report(clashes))
                waiting = f", waiting: {sender.waits_for}" if sender.waits_for else ""
                progress.update(records.bytes_read, f"{tally}{waiting}")
    return tally


def _clash(ready: Ready) -> Reject:
    code = Code.OTHER_ARRAY
    return Reject(ready.record.file, ready.record.line, code, f"{code.meaning} Give this one an id of its own.")


def _report(rejects: list[Reject]) -> int:
    for reject in rejects:
        print(f"secateur publish: {reject}", file=sys.stderr)
    return len(rejects)


def _chunks(records: Records, policy: Source | None) -> Iterator[list[Ready | Reject]]:
    chunk: list[Ready | Reject] = []
    size = 0
    for record in records:
        item = prepare(record, policy, records.max_bytes) if isinstance(record, Record) else record
        chunk.append(item)
        size += len(item.body) if isinstance(item, Ready) else 0
        if len(chunk) >= CHUNK_ENTRIES or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    yield chunk


class Sender:
    """Admits snapshots in chunks; what the server did not take, or did not confirm, is sent again."""

    def __init__(
        self, client: "Redis", keys: "Keys", settings: "Settings", stream: str, patience_s: int, *, is_packing: bool
    ) -> None:
        from service.admit import Gate, Limits
        from service.settle import REPLICAS

        self._client = client
        self._stream = stream
        self._patience_s = patience_s
        self._is_packing = is_packing
        self._gate = Gate(keys, Limits(settings.admit_entries, settings.admit_bytes, settings.marker_ttl_s))
        self._replicas = REPLICAS[settings.durability]
        self._run = f"publish-{secrets.token_hex(8)}"
        self._count = 0
        self.waits_for = ""

    def send(self, chunk: list[Ready]) -> Iterator[Sent]:
        """Send a chunk until all of it is in; what each try came to."""
        from service.settle import growing_delays

        admissions = [(ready, self._admission(ready)) for ready in chunk]
        deadline, delays = time.monotonic() + self._patience_s, growing_delays()
        while admissions:
            again, sent = self._try(admissions)
            yield sent
            if len(again) < len(admissions):
                deadline, delays = time.monotonic() + self._patience_s, growing_delays()
            if len(again) == len(admissions) and time.monotonic() > deadline:
                raise Problem(
                    f"waited {self._patience_s} s in vain ({self.waits_for}); publish the same files again later: "
                    "what is in already is recognised by its snapshot_id, if it has one"
                )
            if again and self.waits_for:
                time.sleep(next(delays))
            admissions = again

    def _try(self, admissions: list["Attempt"]) -> tuple[list["Attempt"], Sent]:
        from service.admit import read_reply
        from service.settle import is_passing

        self.waits_for = ""
        again, new, known, clashes = [], 0, 0, []
        for attempt, reply in zip(admissions, self._ask([admission for _, admission in admissions]), strict=True):
            try:
                admitted = read_reply(reply)
            except Refused as refused:
                self.waits_for = str(refused)
                again.append(attempt)
            except Exception as error:
                if not is_passing(error):
                    raise
                self.waits_for = str(error)
                again.append(attempt)
            else:
                if admitted.is_other_array:
                    clashes.append(attempt[0])
                elif admitted.is_new:
                    new += 1
                else:
                    known += 1
        return again, Sent(new, known, clashes)

    def _ask(self, admissions: list["Admission"]) -> list[Any]:
        from redis.exceptions import ConnectionError

        from service.settle import UNREACHABLE, WAIT_MS

        pipeline: Any = self._client.pipeline(transaction=False)
        pipeline.script_load(self._gate.script.text)
        for admission in admissions:
            pipeline.execute_command(*self._gate.command(admission))
        if self._replicas:
            pipeline.wait(self._replicas, WAIT_MS)
        try:
            replies = list(pipeline.execute(raise_on_error=False))[1:]
        except UNREACHABLE as error:
            # What has arrived all the same is known when it is sent again.
            return [error] * len(admissions)
        replicas = replies.pop() if self._replicas else 0
        if isinstance(replicas, int) and replicas >= self._replicas:
            return replies
        unconfirmed = ConnectionError("no replica has confirmed it")
        return [unconfirmed if isinstance(reply, list) else reply for reply in replies]

    def _admission(self, ready: Ready) -> "Admission":
        from service.admit import Admission
        from service.packing import pack

        self._count += 1
        body, encoding = pack(ready.body) if self._is_packing else (ready.body, "")
        if ready.snapshot_id:
            return Admission(self._stream, ready.snapshot_id, body, encoding, fingerprint=ready.fingerprint)
        # Without an id of its own, a snapshot is at least not added twice by this run.
        return Admission(self._stream, f"{self._run}-{self._count}", body, encoding, 10 * self._patience_s)

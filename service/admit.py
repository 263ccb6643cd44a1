"""Admit: how a producer adds a snapshot, so that sending it again adds nothing and a full lane says so."""

from typing import Any, Final

from msgspec import Struct

from contracts import Code, Refused
from service.keys import BODY_FIELD, ENCODING_FIELD, Keys
from service.script import Script
from service.settings import ADMIT_BYTES, ADMIT_ENTRIES, MARKER_TTL_S

FULL: Final = "LANE_FULL"


class Limits(Struct, frozen=True):
    """What an input may hold before producers are turned away, and how long an admission is remembered."""

    entries: int = ADMIT_ENTRIES
    bytes: int = ADMIT_BYTES
    marker_ttl_s: int = MARKER_TTL_S


class Admission(Struct, frozen=True):
    """One body to be added to ``stream``; its ``id`` is remembered for as long as the lane says, or as said here."""

    stream: str
    id: str
    body: bytes
    encoding: str = ""
    remembered_s: int = 0
    fingerprint: str = ""


class Admitted(Struct, frozen=True):
    """The entry that holds the snapshot; not new when it was sent before, or another one under its id."""

    entry_id: str
    is_new: bool
    is_other_array: bool = False


class Gate:
    """The admit script with a lane's keys and limits; the caller sends the commands, one by one or in a pipeline."""

    def __init__(self, keys: Keys, limits: Limits) -> None:
        self._keys = keys
        self._limits = limits
        self.script = Script("admit")

    def command(self, admission: Admission) -> list[Any]:
        """The command that admits; running it again adds nothing."""
        limits = self._limits
        marker_ttl_ms = 1000 * (admission.remembered_s or limits.marker_ttl_s)
        names = [admission.stream, self._keys.admitted(admission.id), self._keys.done(admission.id)]
        fields: list[Any] = [BODY_FIELD, admission.body]
        if admission.encoding:
            fields += [ENCODING_FIELD, admission.encoding]
        return self.script.command(names, [limits.entries, limits.bytes, marker_ttl_ms, admission.fingerprint, *fields])


def read_reply(reply: Any) -> Admitted:
    """What the script said; ``Refused`` when the lane is full, any other error as it came."""
    if isinstance(reply, Exception):
        if str(reply).startswith(FULL):
            raise Refused(Code.LANE_FULL, str(reply).removeprefix(FULL).strip()) from reply
        raise reply
    verdict, entry_id = reply
    return Admitted(entry_id.decode(), verdict == b"ADMITTED", verdict == b"OTHER_ARRAY")

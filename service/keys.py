"""Key names: everything of a lane, in one hash slot."""

import hashlib
import re
from typing import Final

GROUP: Final = "secateur"
BODY_FIELD: Final = b"__data__"  # FastStream's name for it; any client can write and read it
ENCODING_FIELD: Final = b"enc"
BLOB_FIELD: Final = b"blob"  # where a large result is, in place of the body; its snapshot stands beside it
CONVERSATION_FIELD: Final = b"conversation_id"  # may stand beside a body, and must then agree with it
SNAPSHOT_FIELD: Final = b"snapshot_id"
REPLAYS_FIELD: Final = b"_replays"  # how often an entry has come back from the dead letters

# A hashed id must never equal a plain one, so plain ids may not start like a hash does.
_PLAIN = re.compile(r"(?!sha256-)[A-Za-z0-9_.:-]{1,128}")


class Keys:
    """The keys of one lane."""

    def __init__(self, lane: str) -> None:
        self.lane = lane
        self._tag = f"{{{lane}}}:"
        self.snapshots = self._tag + "snapshots"
        self.batch = self._tag + "snapshots:batch"
        self.pruned = self._tag + "pruned"
        self.metrics = self._tag + "metrics"
        self.dead = self._tag + "dead"
        self.ops = self._tag + "ops"
        self.attempts = self._tag + "attempts"

    @property
    def inputs(self) -> tuple[str, str]:
        """The input streams, the one to be served first in front."""
        return self.snapshots, self.batch

    def results(self, inbox: str) -> str:
        """Where a result goes: the named inbox, else the lane's own stream."""
        return f"{self._tag}inbox:{inbox}" if inbox else self.pruned

    def done(self, snapshot_id: str) -> str:
        """The marker by which a resend is recognised."""
        return f"{self._tag}done:{plain(snapshot_id)}"

    def latest(self, conversation_id: str) -> str:
        """The newest settled sequence of a conversation."""
        return f"{self._tag}latest:{plain(conversation_id)}"

    def admitted(self, snapshot_id: str) -> str:
        """The marker by which a producer's second send is recognised."""
        return f"{self._tag}admitted:{plain(snapshot_id)}"

    def blob(self, name: str) -> str:
        """A large result kept beside its stream."""
        return f"{self._tag}blob:{plain(name)}"


def plain(name: str) -> str:
    """The id itself when it is plain, else its hash: no id can reach another key."""
    return name if _PLAIN.fullmatch(name) else "sha256-" + hashlib.sha256(name.encode()).hexdigest()

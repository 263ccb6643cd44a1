"""Two ways to do it wrong, for the check to find: publish and acknowledge as two acts, in either order."""

import json
import os
import sys
import time
from contextlib import suppress
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from service.keys import GROUP, Keys

CLAIM_AFTER_MS = int(os.environ["SECATEUR_CLAIM_AFTER_MS"])
BETWEEN_S = 0.15  # nearly all of its time, so that nearly every kill falls between the two acts


def work(order: str) -> None:
    """Read, claim, publish and acknowledge for ever; a kill between the last two is what the tests are after."""
    redis, keys, me = Redis.from_url(os.environ["SECATEUR_REDIS_URL"]), Keys("main"), f"naive-{os.getpid()}"
    with suppress(ResponseError):  # the other one was first
        redis.xgroup_create(keys.snapshots, GROUP, id="0", mkstream=True)
    while True:
        claim: Any = redis.xautoclaim(keys.snapshots, GROUP, me, CLAIM_AFTER_MS, count=16)
        fresh: Any = redis.xreadgroup(GROUP, me, {keys.snapshots: ">"}, count=16, block=50)
        entries = [*claim[1], *(entry for _, rows in fresh or [] for entry in rows)]
        if entries:
            settle(redis, keys, order, entries)


def settle(redis: Redis, keys: Keys, order: str, entries: list[tuple[bytes, dict[bytes, bytes]]]) -> None:
    def publish() -> None:
        for _, fields in entries:
            result = {"snapshot_id": json.loads(fields[b"__data__"])["snapshot_id"]}
            redis.xadd(keys.pruned, {"__data__": json.dumps(result)})

    def acknowledge() -> None:
        ids = [entry_id for entry_id, _ in entries]
        both: Any = redis.pipeline(transaction=True)  # a death between the two would leave an entry that nobody settles
        both.xack(keys.snapshots, GROUP, *ids)
        both.xdel(keys.snapshots, *ids)
        both.execute()

    first, second = (publish, acknowledge) if order == "publish-then-ack" else (acknowledge, publish)
    first()
    time.sleep(BETWEEN_S)
    second()


if __name__ == "__main__":
    work(sys.argv[1])

"""A worker that one snapshot kills, as a fault in native code would: at once and without a word."""

import asyncio
import os
import signal

from service.app import build_app
from service.entry import Desk, prune_entry
from service.settings import load_settings
from service.settle import Entry, Settlement


def prune(entry: Entry, desk: Desk) -> Settlement:
    """Prune as always, but die over the poison."""
    if b"POISON" in entry.fields[1] and entry.attempts <= desk.max_attempts:
        os.kill(os.getpid(), signal.SIGKILL)
    return prune_entry(entry, desk)


async def main() -> None:
    await build_app(load_settings(os.environ), prune=prune).run()


if __name__ == "__main__":
    asyncio.run(main())

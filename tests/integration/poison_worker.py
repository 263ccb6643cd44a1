"""The real worker with a stage that some snapshots poison, marked by their workload: it exits, hangs or eats memory."""

import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import pipeline
from service.isolate_child import serve_cell
from service.settings import load_settings
from service.worker import Program, follow_order, run_worker

ME: Final = (sys.executable, "-m", "tests.integration.poison_worker")
HOSTILE: Final = ("a" * 40 + "!", re.compile("(a+)+$"))


def crash() -> None:
    os._exit(9)


def hang() -> None:
    text, pattern = HOSTILE
    pattern.match(text)  # one call into native code that never lets another thread run


def eat() -> None:
    hoard: list[bytes] = []
    while True:
        hoard.append(bytes(2**26))  # asked for, never touched: quick


def dawdle() -> None:
    time.sleep(float(os.environ.get("DAWDLE_S", "2")))


POISONS: Final[dict[str, Callable[[], None]]] = {"crash": crash, "hang": hang, "eat": eat, "dawdle": dawdle}


def poison_the_pipeline() -> None:
    """Put the poisoned stage before the real ones."""
    healthy = pipeline.prune

    def prune(snapshot: Any, *arguments: Any, **options: Any) -> Any:
        POISONS.get(snapshot.workload, lambda: None)()
        return healthy(snapshot, *arguments, **options)

    pipeline.prune = prune


def main(role: str = "") -> int:
    """Be the supervisor, one of its workers, or a worker's cell."""
    poison_the_pipeline()
    if role == "worker":
        return follow_order()
    if role == "cell":
        return serve_cell()
    return run_worker(load_settings(os.environ), Program((*ME, "worker"), (*ME, "cell")))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""A worker for the fault tests: the real one with points to die at, poisons that work, and mutants on request."""

import os
import sys
from pathlib import Path

import service.lane
from service.settings import load_settings
from service.worker import run_worker
from tests.faults.mutants import MUTANTS
from tests.faults.points import Arms, install

SOCKET_TIMEOUT_S = 2.0  # so that a pause of the server is long enough to look like its death


def main(arms: str, mutant: str = "") -> int:
    """Work as the command line does, until killed."""
    service.lane.SOCKET_TIMEOUT_S = SOCKET_TIMEOUT_S  # type: ignore[attr-defined]
    if mutant:
        MUTANTS[mutant]()
    install(Arms(Path(arms)))
    return run_worker(load_settings(os.environ))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

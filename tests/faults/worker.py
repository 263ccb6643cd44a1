"""A worker for the fault tests: the real one with points to die at, poisons that work, and mutants on request."""

import os
import sys
from pathlib import Path

import service.lane
from service.isolate_child import serve_cell
from service.settings import load_settings
from service.worker import Program, run_here
from tests.faults.mutants import MUTANTS
from tests.faults.points import Arms, install

SOCKET_TIMEOUT_S = 2.0  # so that a pause of the server is long enough to look like its death


def main(arms: str, mutant: str = "", role: str = "worker") -> int:
    """Work as a supervised worker does, until killed; or be the child in which such a worker tries its suspects."""
    service.lane.SOCKET_TIMEOUT_S = SOCKET_TIMEOUT_S  # type: ignore[attr-defined]
    if mutant:
        MUTANTS[mutant]()
    install(Arms(Path(arms)))
    if role == "cell":
        return serve_cell()
    cell = (sys.executable, "-m", "tests.faults.worker", arms, mutant, "cell")
    return run_here(load_settings(os.environ), program=Program(cell=cell))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

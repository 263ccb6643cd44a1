"""Prunes the heavy cases of the catalogue, each in a fork of its own with limits, and prints what each took."""

import json
import os
import resource
import sys
import time

from contracts import load_policy
from service.entry import Desk, prune_entry
from service.settle import Entry
from tests.service.bad_inputs import ROWS, Bad

MEMORY_BYTES = 2 * 2**30
DESK = Desk("child", "{main}:snapshots:batch", load_policy(""), 32 * 2**20, 4)


def measure(case: Bad) -> None:
    """Prune one case and print its time and the memory it added; an outcome other than its own is a failure."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    settlement = prune_entry(Entry("{main}:snapshots", "1700000000000-0", case.fields), DESK)
    seconds = time.process_time() - began
    added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    outcome = settlement.refusal.code.value if settlement.refusal else "result"
    assert outcome == case.outcome, f"{case.id}: {outcome}"
    print(json.dumps({"id": case.id, "seconds": round(seconds, 3), "mb": added}), flush=True)


def main() -> int:
    """Measure all; the number of those that failed."""
    failed = 0
    for case in ROWS:
        if case.is_heavy:
            pid = os.fork()
            if pid == 0:
                measure(case)
                os._exit(0)
            failed += os.waitpid(pid, 0)[1] != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())

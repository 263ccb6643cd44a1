"""Limits: what one process may take; the system enforces them, so no code can be too busy to notice."""

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Final

PR_SET_PDEATHSIG: Final = 1
NO_LIMIT: Final = resource.RLIM_INFINITY


def set_deadline(seconds: float) -> None:
    """Have the system end this process after ``seconds``, whatever it is doing then; 0 takes that back."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def obey_deadlines() -> None:
    """Make sure that a deadline ends the process: a parent may have left its signal ignored."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def limit_memory(megabytes: int) -> None:
    """Let this process have no more address space; what it asks for beyond that is a ``MemoryError``."""
    wanted = megabytes * 2**20
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    wanted = wanted if most == NO_LIMIT else min(wanted, most)
    with suppress(ValueError, OSError):  # a system that knows no such limit
        resource.setrlimit(resource.RLIMIT_AS, (wanted, most))


def die_with_parent(parent: int) -> None:
    """Have the system kill this process when its parent dies, however that happens; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)

"""A file that appears whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from service.cli.problem import Problem


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes ``path``'s place when the block ends well and leaves no trace otherwise."""
    if path.exists() and not path.is_file():  # a device or a pipe is written to, never replaced
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()
    if not path.parent.is_dir():
        raise Problem(f"{path.parent}: no such directory")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise

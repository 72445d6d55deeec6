"""The right to write in a folder of checkpoints: one process at a time has it."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Tuple

LOCK = "checkpoint.lock"


class FolderLock:
    """The lock on a folder, held until the last object of this process that writes there is gone.

    It is a record lock (``fcntl``), the kind that also works between hosts that share a folder, and that a forked
    process does not inherit. A process would lose it by closing a second file on the same lock, hence ``LOCKS``.
    """

    def __init__(self) -> None:
        self.process, self.writing, self._file = os.getpid(), threading.Lock(), -1

    def take(self, folder: Path) -> None:
        """Take it, if it isn't held yet, and remove what processes that are gone have left half written.

        Raises:
            BlockingIOError: another process has it; ``strerror`` says which.
            OSError: the folder can't be locked.
        """
        if self._file >= 0:
            return
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(file, 1000, 0).decode(errors="replace").strip()
            os.close(file)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(error.errno, holder or "a process that does not say its number") from None
            raise
        self._file = file
        weakref.finalize(self, os.close, file).atexit = False
        with suppress(OSError):
            for part in folder.glob("checkpoint-*.part"):
                part.unlink()
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {self.process} on {os.uname().nodename}\n".encode(), 0)


LOCKS: weakref.WeakValueDictionary[Tuple[int, str], FolderLock] = weakref.WeakValueDictionary()
"""By process and folder. A forked process finds none of its parent's."""
TAKING = threading.Lock()

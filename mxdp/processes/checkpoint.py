"""Checkpoints: the state of a training in a file, written while the training goes on, and read to continue it.

A file is NumPy's ``.npz``, which ``numpy.load`` reads without pickle: the arrays, and a text ``facts`` (JSON). The
zip's comment is the SHA-256 of all before it. A file is written under another name, flushed to the disk and then
renamed::

    checkpoint-000007.npz   checkpoint-000008.npz   checkpoint-000009.npz   checkpoint-000010.npz.HOST-4711.part
    the last three are kept                                                 process 4711 is writing it

The engine copies the arrays on their device between two steps. A thread waits for the copies and writes them; the
training doesn't wait. Only rank 0 reads and writes. A process that trains holds a lock on ``checkpoint.lock``, which
the system takes back however the process ends. Readers need no lock and change nothing.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, List, Mapping, Optional, Set, Tuple, Union

import numpy as onp

from mxdp.backend import NDArray, host_view, mx
from mxdp.datasets.records import positive_int
from mxdp.engine import CompletionEvent
from mxdp.errors import MxdpError
from mxdp.processes.checkpoint_file import (
    LOCKS,
    TAKING,
    UNREADABLE,
    Arrays,
    Facts,
    FolderLock,
    check_whole,
    checkpoints,
    identity,
    lock_on,
    make_checkpoint_folder,
    match,
    number_of,
    plain,
    read_checkpoint,
    write_checkpoint,
)
from mxdp.processes.world import ALONE, World

Report = Callable[[str], Any]
Check = Callable[[Arrays, Facts], Any]
FULL = (errno.ENOSPC, errno.EDQUOT)


class CheckpointFolder:
    """A folder with the last ``keep`` checkpoints of one training. Every rank makes it and calls it alike.

    Args:
        folder: is made if it is missing; only rank 0 uses it.
        keep: how many checkpoints stay.
        world: of several processes (:func:`mxdp.world`).
        report: receives a line when a training continues, and for each file that can't be read or written.

    Raises a ValueError unless ``keep`` is a positive int, or an MxdpError, on every rank, if the folder can't be made.
    """

    def __init__(
        self,
        folder: Union[str, Path],
        keep: int = 3,
        world: Optional[World] = None,
        report: Report = print,
    ) -> None:
        self.folder = Path(folder)
        self._keep = positive_int("keep", keep)
        self._world = world or ALONE
        self._report_to = report
        self._refused: Set[Path] = set()
        self._lock: Optional[FolderLock] = None
        self._ours = False  # whether the newest checkpoint is of this training
        self._thread: Optional[threading.Thread] = None
        self._failure: Optional[Exception] = None  # of the thread
        self._place = ""  # of the checkpoint that the thread writes
        # The place of the first checkpoint, after the newest, that was not written.
        self._unsaved: Optional[str] = None
        # The line about the first checkpoint that had to go; empty after it was reported.
        self._given_up: Optional[str] = None
        self._on_rank_0(lambda: make_checkpoint_folder(self.folder))

    def _on_rank_0(self, do: Callable[[], Any]) -> Any:
        """``do()`` of rank 0, on every rank. Where it fails, every rank raises."""
        return self._world.together(do if self._world.rank == 0 else lambda: None)[0]

    def _report(self, line: str) -> None:
        if self._world.rank == 0:
            self._report_to(line)

    def lock(
        self, header: Optional[Facts] = None, arrays: Optional[Mapping[str, Any]] = None
    ) -> None:
        """Keep other processes from writing, until this object is gone. Every rank calls it; else the first
        :meth:`write` takes the lock. Files that processes left half written are removed. Objects of one process share
        the lock and write one after the other.

        ``header`` and ``arrays``: of the first checkpoint, if none was read before. Raises an MxdpError, on every rank,
        if another process has the lock, or the newest checkpoint is of another training.
        """
        self._on_rank_0(lambda: self._claim(header, arrays or {}))
        self._ours = self._ours or header is not None

    def write(self, header: Facts, arrays: Mapping[str, Any], facts: Facts) -> None:
        """Write a checkpoint in the background. Waits only for the one before. Needs memory for one copy. Of NumPy's
        arrays it takes none: leave them as they are until :meth:`wait`.

        If the disk is full, the oldest checkpoints are removed, never the newest whole one. If that is not enough, or
        the disk can't be written, the next call or :meth:`wait` reports it, and raises any other error of this
        checkpoint. Raises an MxdpError as :meth:`lock`.
        """
        self._join()
        if self._world.rank > 0:
            return
        self._claim(header, arrays)
        self._ours = True
        arrays = dict(arrays)  # which the caller may change
        copies = {name: _copy(x) for name, x in arrays.items() if not isinstance(x, onp.ndarray)}
        copied = CompletionEvent(list(copies.values()))
        text = json.dumps(plain({**header, "facts": facts}))
        self._place = self._described(facts)

        def work() -> None:
            try:
                copied.wait()
                host = {**arrays, **{name: host_view(copy) for name, copy in copies.items()}}
                assert self._lock
                with self._lock.writing:
                    self._write_next(host, text)
            except Exception as error:  # the next call of the user's thread tells it
                self._failure = error

        self._thread = threading.Thread(target=work, name="mxdp checkpoint")
        self._thread.start()

    def read(
        self, header: Optional[Facts], check: Optional[Check] = None
    ) -> Optional[Tuple[Arrays, Facts, bool]]:
        """The newest whole checkpoint, on every rank, without a lock: arrays, facts, and whether replicas are as many.

        With a header, every rank raises an MxdpError for another ``header["training"]``, and a line tells of other
        ``header["replicas"]``. ``check(arrays, facts)`` raises one of ``UNREADABLE`` for what this training can't have
        written; then the checkpoint before is read.
        """
        here: Any = plain(header["training"]) if header else None
        held: Arrays = {}

        def check_ours(arrays: Arrays, was: Facts) -> None:
            if check and was["training"] == here:
                check(arrays, was["facts"])

        def newest() -> Optional[Tuple[Path, List[str], Facts]]:
            self._join()
            found = self._newest(check_ours)
            if found is None:
                return None
            path, arrays, was = found
            held.update(arrays)
            return path, list(arrays), was

        found = self._on_rank_0(newest)
        if found is None:
            return None
        path, names, was = found
        # One array at a time: a message needs its memory several times.
        arrays = {name: self._world.gather(held.pop(name, None))[0] for name in names}
        if header is None:
            return arrays, was["facts"], False
        match(self.folder, was["training"], here)
        self._ours = True
        self._report(f"continuing from {path}")
        as_many: bool = was["replicas"] == header["replicas"]
        if not as_many:
            both = f"the checkpoint is of {was['replicas']} and this run of {header['replicas']}"
            self._report(f"{both}: the state is the same, but sums may differ in the last bits")
        return arrays, was["facts"], as_many

    def wait(self) -> None:
        """Wait until the last checkpoint is on the disk, or report from which on none was written; raises other errors.
        At a program's end Python waits by itself."""
        self._join()
        if self._unsaved is not None:
            files = self._files()
            newest = "there is no checkpoint"
            if files:
                newest = f"{files[-1].name} is the newest checkpoint"
            self._report(f"nothing is saved from {self._unsaved or 'there'} on: {newest}")

    def _join(self) -> None:
        """Wait for the thread, and report what it met."""
        if not self._thread:
            return
        self._thread.join()
        self._thread = None
        failure = self._failure
        self._failure = None
        if self._given_up:
            self._report(self._given_up)
            self._given_up = ""  # once is enough
        if failure is None:
            self._unsaved = None
            return
        if not isinstance(failure, OSError):
            raise failure
        files = self._files()
        stays = f"{files[-1].name} stays the newest" if files else "there is none before it"
        self._report(
            f"a checkpoint could not be written ({failure}): {stays}, and the training goes on"
        )
        if self._unsaved is None:
            self._unsaved = self._place

    def _described(self, facts: Facts) -> str:
        """The place of a checkpoint in the training, in words."""
        return f"epoch {facts['epoch'] + 1}" if "epoch" in facts else ""

    def _take(self) -> str:
        """Take the lock. The answer is empty, or says why this process can't have it."""
        if self._lock and self._lock.process == os.getpid():
            return ""
        with TAKING:
            lock = lock_on(self.folder)
            try:
                lock.take(self.folder)
            except BlockingIOError as error:
                who = f"another training writes checkpoints in {self.folder} ({error.strerror})"
                return f"{who}: use another folder, or wait until it has ended{self._TO_READ}"
            except OSError as error:
                what = f"{self.folder} can't be locked ({error})"
                self._report(f"{what}: see that no other training writes checkpoints there")
            LOCKS.add(lock)
        self._lock = lock
        return ""

    def _claim(self, header: Optional[Facts], arrays: Mapping[str, Any]) -> None:
        """Take the lock. The newest checkpoint must be of this training, which will remove old ones."""
        problem = self._take()
        if problem:
            raise MxdpError(problem)
        if header is None or self._ours:
            return
        newest = self._newest()
        if newest:
            _, theirs, was = newest
            there = identity(was["training"], theirs)
            match(self.folder, there, identity(header["training"], arrays))

    _TO_READ = ""
    """The end of the sentence for the second writer."""

    def _write_next(self, host: Arrays, text: str) -> None:
        """Write a checkpoint with the next number, and remove the oldest."""
        needed = sum(x.nbytes for x in host.values())
        while True:
            files = self._files()
            number = number_of(files[-1]) + 1 if files else 1
            try:
                path = self.folder / f"checkpoint-{number:06d}.npz"
                write_checkpoint(path, host, text)
                break
            except OSError as error:
                if error.errno not in FULL or not self._give_up_oldest(needed):
                    raise
        for old in self._not_refused()[: -self._keep]:
            with suppress(OSError):
                old.unlink()

    def _give_up_oldest(self, needed: int) -> bool:
        """Remove the oldest checkpoint, if the older ones make room for ``needed`` bytes and a newer one is whole."""
        files = self._not_refused()
        while len(files) > 1:
            try:
                with open(files[-1], "rb") as file:
                    check_whole(file)
                break
            except UNREADABLE:
                self._refused.add(files.pop())
        older = files[:-1]
        if not older:
            return False
        room = shutil.disk_usage(self.folder).free + sum(path.stat().st_size for path in older)
        if room < needed:
            return False
        older[0].unlink()
        if self._given_up is None:
            removed = f"{older[0].name}, the oldest checkpoint, was removed for a new one"
            self._given_up = f"the disk is full: {removed}, so fewer than {self._keep} may be kept"
        return True

    def _files(self) -> List[Path]:
        return checkpoints(self.folder)

    def _not_refused(self) -> List[Path]:
        return [path for path in self._files() if path not in self._refused]

    def _newest(self, check: Optional[Check] = None) -> Optional[Tuple[Path, Arrays, Facts]]:
        """The path, the arrays and all facts of the newest file that is whole and passes ``check``."""
        files = self._not_refused()
        while files:
            path = files.pop()
            try:
                arrays, was = read_checkpoint(path)
                if check:
                    check(arrays, was)
                return path, arrays, was
            except FileNotFoundError:  # the training that writes here has newer ones
                self._refused.add(path)
                files = self._not_refused()
            except UNREADABLE as error:
                self._refused.add(path)
                instead = "there is none before it"
                if files:
                    instead = f"{files[-1].name}, the one before it, is taken"
                self._report(f"{path} is not used ({error or type(error).__name__}): {instead}")
        return None


def _copy(array: NDArray) -> NDArray:
    """A copy on the host, by way of one on the array's device (not run on a GPU)."""
    copy = array.copy()
    return copy if copy.ctx.device_type == "cpu" else copy.as_in_context(mx.cpu())

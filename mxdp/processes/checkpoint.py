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

from mxdp.backend import HostArray, NDArray, host_view, mx
from mxdp.datasets.records import positive_int
from mxdp.engine import CompletionEvent
from mxdp.errors import MxdpError
from mxdp.processes import checkpoint_file
from mxdp.processes.checkpoint_file import (
    LOCKS,
    TAKING,
    UNREADABLE,
    Arrays,
    Facts,
    FolderLock,
    identity,
    match,
    plain,
)
from mxdp.processes.world import World

Report = Callable[[str], Any]
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
        self.folder, self._keep = Path(folder), positive_int("keep", keep)
        self._world = world or World()
        self._report: Report = report if self._world.rank == 0 else lambda line: None
        self._refused: Set[Path] = set()
        self._thread: Optional[threading.Thread] = None
        self._failure: Optional[Exception] = None
        self._lock: Optional[FolderLock] = None
        self._given_up: Optional[str] = (
            None  # the line about the first one that had to go, until it is reported
        )
        self._place = ""  # of the checkpoint that the thread writes
        self._unsaved: Optional[str] = (
            None  # the place of the first that was not written after the newest
        )
        self._ours = False  # whether the newest checkpoint is of this training
        self._on_rank_0(lambda: checkpoint_file.make_checkpoint_folder(self.folder))

    def _on_rank_0(self, do: Callable[[], Any]) -> Any:
        """``do()`` of rank 0, on every rank. Where it fails, every rank raises."""
        return self._world.together(do if self._world.rank == 0 else lambda: None)[0]

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

    def write(
        self, header: Facts, arrays: Mapping[str, Union[NDArray, HostArray]], facts: Facts
    ) -> None:
        """Write a checkpoint in the background. Waits only for the one before. Needs memory for one copy.

        If the disk is full, the oldest checkpoints are removed, never the newest whole one. If that is not enough, or
        the disk can't be written, the next call or :meth:`wait` reports it, and raises any other error of this
        checkpoint. Raises an MxdpError as :meth:`lock`.
        """
        self._join()
        if self._world.rank > 0:
            return
        self._claim(header, arrays)
        self._ours = True
        # A GPU's copy goes on to the host's memory (not run on a GPU).
        copies = {n: x if isinstance(x, onp.ndarray) else _copy(x) for n, x in arrays.items()}
        copied = CompletionEvent([x for x in copies.values() if not isinstance(x, onp.ndarray)])
        text = json.dumps(plain({**header, "facts": facts}))
        self._place = self._described(facts)

        def work() -> None:
            try:
                copied.wait()
                host = {
                    n: x if isinstance(x, onp.ndarray) else host_view(x) for n, x in copies.items()
                }
                assert self._lock
                with self._lock.writing:
                    self._write_next(host, text)
            except Exception as error:  # the next call of the user's thread tells it
                self._failure = error

        self._thread = threading.Thread(target=work, name="mxdp checkpoint")
        self._thread.start()

    def read(
        self, header: Optional[Facts], check: Optional[Callable[[Arrays, Facts], Any]] = None
    ) -> Optional[Tuple[Arrays, Facts, bool]]:
        """The newest whole checkpoint, on every rank, without a lock: arrays, facts, and whether replicas are as many.

        With a header, every rank raises an MxdpError for another ``header["training"]``, and a line tells of other
        ``header["replicas"]``. ``check(arrays, facts)`` raises one of ``UNREADABLE`` for what this training can't have
        written; then the checkpoint before is read.
        """
        here = None if header is None else identity(header["training"], {})
        held: Arrays = {}

        def newest() -> Optional[Tuple[Path, List[str], Facts]]:
            self._join()
            whole = self._newest(
                lambda arrays, was: (
                    check and here == was["training"] and check(arrays, was["facts"])
                )
            )
            held.update(whole[1] if whole else {})
            return whole and (whole[0], list(held), whole[2])

        there = self._on_rank_0(newest)
        if there is None:
            return None
        path, names, was = there
        # One array at a time: a message needs its memory several times.
        arrays = {name: self._world.gather(held.pop(name, None))[0] for name in names}
        if header is None or here is None:
            return arrays, was["facts"], False
        match(self.folder, was["training"], here)
        self._ours = True
        self._report(f"continuing from {path}")
        if was["replicas"] != header["replicas"]:
            both = f"the checkpoint is of {was['replicas']} and this run of {header['replicas']}"
            self._report(f"{both}: the state is the same, but sums may differ in the last bits")
        return arrays, was["facts"], was["replicas"] == header["replicas"]

    def wait(self) -> None:
        """Wait until the last checkpoint is on the disk, or report from which on none was written; raises other errors.
        At a program's end Python waits by itself."""
        self._join()
        if self._unsaved is not None:
            files = self._files()
            newest = (
                f"{files[-1].name} is the newest checkpoint" if files else "there is no checkpoint"
            )
            self._report(f"nothing is saved from {self._unsaved or 'there'} on: {newest}")

    def _join(self) -> None:
        """Wait for the thread, and report what it met."""
        if not self._thread:
            return
        self._thread.join()
        self._thread, failure, self._failure = None, self._failure, None
        if self._given_up:
            self._report(self._given_up)
            self._given_up = ""  # once is enough
        if isinstance(failure, OSError):
            files = self._files()
            stays = f"{files[-1].name} stays the newest" if files else "there is none before it"
            self._report(
                f"a checkpoint could not be written ({failure}): {stays}, and the training goes on"
            )
            self._unsaved = self._place if self._unsaved is None else self._unsaved
        elif failure:
            raise failure
        else:
            self._unsaved = None

    def _described(self, facts: Facts) -> str:
        """The place of a checkpoint in the training, in words."""
        return f"epoch {facts['epoch'] + 1}" if "epoch" in facts else ""

    def _take(self) -> str:
        """Take the lock. The answer is empty, or says why this process can't have it."""
        if self._lock and self._lock.process == os.getpid():
            return ""
        key = os.getpid(), os.path.realpath(self.folder)
        with TAKING:
            lock = LOCKS.get(key) or FolderLock()
            try:
                lock.take(self.folder)
            except BlockingIOError as error:
                who = f"another training writes checkpoints in {self.folder} ({error.strerror})"
                return f"{who}: use another folder, or wait until it has ended{self._TO_READ}"
            except OSError as error:
                what = f"{self.folder} can't be locked ({error})"
                self._report(f"{what}: see that no other training writes checkpoints there")
            self._lock = LOCKS[key] = lock
        return ""

    def _claim(self, header: Optional[Facts], arrays: Mapping[str, Any]) -> None:
        """Take the lock. The newest checkpoint must be of this training, which will remove old ones."""
        problem = self._take()
        if problem:
            raise MxdpError(problem)
        newest = self._newest() if header and not self._ours else None
        if header and newest:
            match(
                self.folder,
                identity(newest[2]["training"], newest[1]),
                identity(header["training"], arrays),
            )

    _TO_READ = ""
    """The end of the sentence for the second writer."""

    def _write_next(self, host: Arrays, text: str) -> None:
        """Write a checkpoint with the next number, and remove the oldest."""
        while True:
            files = self._files()
            path = (
                self.folder
                / f"checkpoint-{checkpoint_file.number_of(files[-1]) + 1 if files else 1:06d}.npz"
            )
            try:
                checkpoint_file.write_checkpoint(path, host, text)
                break
            except OSError as error:
                if error.errno not in FULL or not self._give_up_oldest(
                    sum(x.nbytes for x in host.values())
                ):
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
                    checkpoint_file.check_whole(file)
                break
            except UNREADABLE:
                self._refused.add(files.pop())
        free = shutil.disk_usage(self.folder).free
        if len(files) < 2 or free + sum(path.stat().st_size for path in files[:-1]) < needed:
            return False
        files[0].unlink()
        if self._given_up is None:
            removed = f"{files[0].name}, the oldest checkpoint, was removed for a new one"
            self._given_up = f"the disk is full: {removed}, so fewer than {self._keep} may be kept"
        return True

    def _files(self) -> List[Path]:
        return checkpoint_file.checkpoints(self.folder)

    def _not_refused(self) -> List[Path]:
        return [path for path in self._files() if path not in self._refused]

    def _newest(
        self, check: Callable[[Arrays, Facts], Any] = lambda arrays, was: None
    ) -> Optional[Tuple[Path, Arrays, Facts]]:
        files = self._not_refused()
        while files:
            path = files.pop()
            try:
                arrays, was = checkpoint_file.read_checkpoint(path)
                check(arrays, was)
                return path, arrays, was
            except UNREADABLE as error:
                self._refused.add(path)
                if isinstance(
                    error, FileNotFoundError
                ):  # the training that writes here has newer ones
                    files = self._not_refused()
                    continue
                instead = (
                    f"{files[-1].name}, the one before it, is taken"
                    if files
                    else "there is none before it"
                )
                self._report(f"{path} is not used ({error or type(error).__name__}): {instead}")
        return None


def _copy(array: NDArray) -> NDArray:
    copy = array.copy()
    return copy if copy.ctx.device_type == "cpu" else copy.as_in_context(mx.cpu())

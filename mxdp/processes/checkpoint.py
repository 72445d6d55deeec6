"""Checkpoints: the state of a training in a file, written while the training goes on, and read to continue it.

A file is NumPy's ``.npz``, which ``numpy.load`` reads without pickle: the arrays, and a text ``facts`` (JSON). The
comment at the zip's end is the SHA-256 of all before it, so that a damaged file is known. It is written under another
name, flushed to the disk and then renamed, so a folder holds whole files only::

    checkpoint-000007.npz   checkpoint-000008.npz   checkpoint-000009.npz   checkpoint-000010.npz.part
    the last three are kept                                                 being written

The arrays are copied on their device, by operators that the engine puts between two steps. A thread waits for the
copies and writes them; the training doesn't wait. Only rank 0 reads and writes, so only it needs the folder.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple, Union

import numpy as onp

from mxdp.backend import HostArray, NDArray, host_view, mx
from mxdp.datasets.records import positive_int
from mxdp.engine import CompletionEvent
from mxdp.errors import MxdpError
from mxdp.processes.world import World

NAME = re.compile(r"checkpoint-\d{6}\.npz")
COMMENT = (64).to_bytes(2, "little")
"""The length of a zip's comment, before the comment itself: the SHA-256 in hexadecimal digits."""
Arrays = Dict[str, HostArray]
Facts = Dict[str, Any]
Report = Callable[[str], Any]


class CheckpointFolder:
    """A folder with the last ``keep`` checkpoints of one training. Every rank makes it and calls it alike.

    Args:
        folder: is made if it is missing; only rank 0 uses it.
        keep: how many checkpoints stay.
        world: of several processes (:func:`mxdp.world`).
        report: receives a line when a training continues, and for each file that can't be read or written.

    Raises:
        MxdpError: the folder can't be made.
        ValueError: ``keep`` is not a positive int.
    """

    def __init__(
        self, folder: Union[str, Path], keep: int = 3, world: Optional[World] = None, report: Report = print
    ) -> None:
        self.folder, self._keep = Path(folder), positive_int("keep", keep)
        self._world = world or World()
        self._report: Report = report if self._world.rank == 0 else lambda line: None
        self._refused: Set[Path] = set()
        self._thread: Optional[threading.Thread] = None
        self._failure: Optional[Exception] = None
        if self._world.rank == 0:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                for part in self.folder.glob("checkpoint-*.npz.part"):  # of a process that was killed
                    part.unlink()
            except OSError as error:
                raise MxdpError(f"no checkpoints can be kept in {self.folder}: {error}") from error

    def write(self, header: Facts, arrays: Mapping[str, Union[NDArray, HostArray]], facts: Facts) -> None:
        """Write a checkpoint in the background. Waits only for the one before, if that is not yet on the disk.

        A disk that is full or can't be written is reported at the next call or by :meth:`wait`; the training goes on.

        Raises:
            Exception: another error of the checkpoint before.
        """
        self.wait()
        if self._world.rank > 0:
            return
        # A GPU's copy goes on to the host's memory (not run on a GPU).
        copies = {n: x if isinstance(x, onp.ndarray) else x.copy().as_in_context(mx.cpu()) for n, x in arrays.items()}
        copied = CompletionEvent([x for x in copies.values() if not isinstance(x, onp.ndarray)])
        text = json.dumps({**header, "facts": facts}, default=float)
        files = self._files()
        number = int(files[-1].name[11:-4]) + 1 if files else 1
        path = self.folder / f"checkpoint-{number:06d}.npz"

        def work() -> None:
            try:
                copied.wait()
                host = {n: x if isinstance(x, onp.ndarray) else host_view(x) for n, x in copies.items()}
                _write(path, _encoded(host, text))
                for old in [each for each in self._files() if each not in self._refused][: -self._keep]:
                    with suppress(OSError):
                        old.unlink()
            except Exception as error:  # the next call of the user's thread tells it
                self._failure = error

        self._thread = threading.Thread(target=work, name="mxdp checkpoint")
        self._thread.start()

    def read(self, header: Facts) -> Optional[Tuple[Arrays, Facts, bool]]:
        """The newest checkpoint that is whole, on every rank: arrays, facts, and whether it is of as many replicas.

        ``header["training"]`` must be the checkpoint's. With other ``header["replicas"]`` a line says what this means.

        Raises:
            MxdpError: on every rank, if the checkpoint is of another training.
        """
        self.wait()
        found = self._world.gather(self._newest() if self._world.rank == 0 else None)[0]
        if found is None:
            return None
        path, arrays, was = found
        self._match(was["training"], json.loads(json.dumps(header["training"], default=float)))
        self._report(f"continuing from {path}")
        if was["replicas"] != header["replicas"]:
            self._report(
                f"the checkpoint is of {was['replicas']} and this run of {header['replicas']}: the state is the same, "
                "but sums may differ in the last bits"
            )
        return arrays, was["facts"], was["replicas"] == header["replicas"]

    def wait(self) -> None:
        """Wait until the last checkpoint is on the disk. At a program's end Python waits by itself.

        Raises:
            Exception: it could not be made, for another reason than the disk, which is reported.
        """
        if self._thread:
            self._thread.join()
        self._thread, failure, self._failure = None, self._failure, None
        if isinstance(failure, OSError):
            files = self._files()
            stays = f"{files[-1].name} stays the newest" if files else "there is none before it"
            self._report(f"a checkpoint could not be written ({failure}): {stays}, and the training goes on")
        elif failure:
            raise failure

    def _files(self) -> List[Path]:
        return sorted(path for path in self.folder.glob("*.npz") if NAME.fullmatch(path.name))

    def _newest(self) -> Optional[Tuple[Path, Arrays, Facts]]:
        files = self._files()
        while files:
            path = files.pop()
            try:
                return (path, *_decoded(path.read_bytes()))
            except (OSError, ValueError) as error:
                self._refused.add(path)
                instead = f"{files[-1].name}, the one before it, is taken" if files else "there is none before it"
                self._report(f"{path} is not used ({error}): {instead}")
        return None

    def _match(self, there: Facts, here: Facts) -> None:
        differ = [name for name in [*here, *(set(there) - set(here))] if there.get(name) != here.get(name)]
        if differ:
            what = ", ".join(f"{name} is {there.get(name)} there and {here.get(name)} here" for name in differ[:3])
            what += ", ..." if len(differ) > 3 else ""
            raise MxdpError(f"{self.folder} holds another training: {what}; use another folder, or train as before")


def _encoded(arrays: Arrays, facts: str) -> bytes:
    file = io.BytesIO()
    named: Dict[str, Any] = {"facts": onp.array(facts), **arrays}
    onp.savez(file, **named)
    content = file.getvalue()[:-2]  # without the length of the comment, which is 0
    return content + COMMENT + hashlib.sha256(content).hexdigest().encode()


def _decoded(file: bytes) -> Tuple[Arrays, Facts]:
    content, comment, digest = file[:-66], file[-66:-64], file[-64:]
    if comment != COMMENT or digest != hashlib.sha256(content).hexdigest().encode():
        raise ValueError("damaged, or no checkpoint of mxdp: its checksum is wrong")
    with onp.load(io.BytesIO(file), allow_pickle=False) as members:
        arrays = {name: members[name] for name in members.files}
    return arrays, json.loads(str(arrays.pop("facts")))


def _write(path: Path, content: bytes) -> None:
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

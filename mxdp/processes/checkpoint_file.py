"""A checkpoint as a file with its SHA-256; and a folder's lock, by which one process at a time writes there."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import threading
import weakref
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Dict, List, Mapping, Tuple, cast

import numpy as onp

from mxdp.backend import HostArray
from mxdp.errors import MxdpError

COMMENT = b"\x40\0"
"""The length of a zip's comment, before the comment itself: the 64 hexadecimal digits of a SHA-256."""
PIECE = 1 << 20
"""How many bytes are read at once for it."""
LOCK = "checkpoint.lock"
NAME = re.compile(r"checkpoint-(\d{6,})\.npz")
Arrays = Dict[str, HostArray]
Facts = Dict[str, Any]
KINDS = {"training": dict, "replicas": str, "facts": dict}
UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    MemoryError,
    RuntimeError,
    zipfile.BadZipFile,
)
"""What :func:`read_checkpoint` raises for a file that is damaged or foreign."""


def write_checkpoint(path: Path, arrays: Arrays, text: str) -> None:
    """Write ``arrays`` and ``text`` (JSON), flush them to the disk, and only then give the file its name. Raises an
    OSError if that fails; nothing is left of it then."""
    write_array = cast(Any, onp.lib.format.write_array)
    part = path.with_name(f"{path.name}.{os.uname().nodename}-{os.getpid()}.part")
    try:
        with open(part, "w+b") as file:
            # numpy.savez would leave the zip open on a full disk, and Python complain of that.
            with zipfile.ZipFile(file, "w") as members:
                for name, array in {"facts": onp.array(text), **arrays}.items():
                    with members.open(f"{name}.npy", "w", force_zip64=True) as member:
                        write_array(member, array, allow_pickle=False)
            # In place of the length of the comment, two bytes of 0 at the end.
            file.write(_checksum(file, file.seek(-2, os.SEEK_END)))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_checkpoint(path: Path) -> Tuple[Arrays, Facts]:
    """The arrays and the facts of a file, without pickle. Raises one of ``UNREADABLE`` if it is damaged or foreign. No
    more memory is taken than the file has bytes: NumPy touches none of what an array claims beyond its end."""
    read_array = cast(Any, onp.lib.format.read_array)
    arrays: Arrays = {}
    with open(path, "rb") as file:
        size = check_whole(file)
        with zipfile.ZipFile(file) as members:
            all_members = members.infolist()
            if sum(member.file_size for member in all_members) > size:
                raise ValueError("no checkpoint of mxdp: it is longer inside than outside")
            for member in all_members:
                if member.compress_type != zipfile.ZIP_STORED:
                    raise ValueError(f"no checkpoint of mxdp: {member.filename} is compressed")
                with members.open(member) as content:
                    arrays[member.filename[:-4]] = read_array(content, allow_pickle=False)
    was = json.loads(str(arrays.pop("facts")))
    if not all(isinstance(was[name], kind) for name, kind in KINDS.items()):
        raise ValueError("no checkpoint of mxdp: its facts are of another kind")
    return arrays, {name: was[name] for name in KINDS}


def make_checkpoint_folder(folder: Path) -> None:
    """Make a folder for checkpoints. Raises an MxdpError if that can't be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MxdpError(f"no checkpoints can be kept in {folder}: {error}") from error


def checkpoints(folder: Path) -> List[Path]:
    """The checkpoints in a folder, the oldest first."""
    return sorted(
        (path for path in folder.glob("*.npz") if NAME.fullmatch(path.name)), key=number_of
    )


def number_of(path: Path) -> int:
    """The number of a checkpoint, from its name."""
    return int(path.stem.rpartition("-")[2])


def check_whole(file: IO[bytes]) -> int:
    """The file's length without its SHA-256. Goes back to its start. Raises a ValueError if it is damaged."""
    content = file.seek(0, os.SEEK_END) - 66
    if content < 0 or _checksum(file, content) != file.read():
        raise ValueError("damaged, or no checkpoint of mxdp: its checksum is wrong")
    file.seek(0)
    return content


def _checksum(file: IO[bytes], length: int) -> bytes:
    """The SHA-256 of the first ``length`` bytes as a zip's comment, behind its length. Leaves the file behind them."""
    digest = hashlib.sha256()
    file.seek(0)
    for start in range(0, length, PIECE):
        digest.update(file.read(min(PIECE, length - start)))
    return COMMENT + digest.hexdigest().encode()


def plain(value: Any, name: str = "facts") -> Any:
    """A value in JSON's kinds, which come back as they are. NumPy's and MXNet's single numbers become Python's. Raises
    an MxdpError for what JSON can't say."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{name}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(item, key) for key, item in value.items()}
    if isinstance(value, onp.generic) or getattr(value, "size", None) == 1:
        # MXNet's classic arrays have no item(), and those of mx.np no asscalar() that works.
        number = value if hasattr(value, "item") else value.asscalar()
        return plain(number.item(), name)
    raise MxdpError(
        f"a checkpoint can't keep {name}, which is {type(value).__name__}: give a number, a text, True, False, None, "
        "or a list or dictionary of these, with texts as keys"
    )


def identity(training: Facts, arrays: Mapping[str, Any]) -> Facts:
    """The facts that identify a training, as a file gives them back, with dtype and shape of each parameter."""
    facts: Facts = plain(training)
    for name, x in arrays.items():
        if name.startswith("parameters/"):
            facts[name] = f"{onp.dtype(x.dtype)} {tuple(x.shape)}"
    return facts


def match(folder: Path, there: Facts, here: Facts) -> None:
    """Raise an MxdpError, which says what differs, unless a checkpoint there is of the training here."""
    differ = [
        f"{name} is {there.get(name)} there and {here.get(name)} here"
        for name in {**here, **there}
        if there.get(name) != here.get(name)
    ]
    if differ:
        more = ", ..." if len(differ) > 3 else ""
        raise MxdpError(
            f"{folder} holds another training: {', '.join(differ[:3])}{more}; use another folder, or train as before"
        )


class FolderLock:
    """The lock on a folder, held until the last object of this process that writes there is gone.

    A record lock (``fcntl``) also works between hosts that share a folder, and a forked process does not inherit it. A
    process would lose it by closing a second file on the same lock, hence ``LOCKS``.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.writing = threading.Lock()
        self._file = -1
        self._at = (0, 0)

    def is_on(self, folder: Path) -> bool:
        """Whether this process has tried to take it on this folder, by whatever name, and not on one before it."""
        try:
            at = _place(os.stat(folder / LOCK))
        except OSError:
            return False
        return self.process == os.getpid() and self._at == at

    def take(self, folder: Path) -> None:
        """Take it, if it isn't held yet, and remove half-written files. Raises a BlockingIOError, whose ``strerror``
        names the process that has it, or an OSError if there are no locks here."""
        if self._file >= 0:
            return
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        self._at = _place(os.fstat(file))
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(file, 1000, 0).decode(errors="replace").strip()
            os.close(file)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(
                    error.errno, holder or "a process that does not say its number"
                ) from None
            raise
        self._file = file
        weakref.finalize(self, os.close, file).atexit = False
        with suppress(OSError):
            for part in folder.glob("checkpoint-*.part"):
                part.unlink()
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {self.process} on {os.uname().nodename}\n".encode(), 0)


def _place(status: os.stat_result) -> Tuple[int, int]:
    """By which a file is known. As long as it is open, no other file gets the same."""
    return status.st_dev, status.st_ino


LOCKS: weakref.WeakSet[FolderLock] = weakref.WeakSet()
"""All locks. A forked process has its parent's in it, too."""
TAKING = threading.Lock()


def lock_on(folder: Path) -> FolderLock:
    """This process's lock on the folder, or else a new one, which is not taken yet."""
    for lock in LOCKS:
        if lock.is_on(folder):
            return lock
    return FolderLock()

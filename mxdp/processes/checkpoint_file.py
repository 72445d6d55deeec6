"""One checkpoint as a file: written piece by piece with its SHA-256, and read where that is right."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from pathlib import Path
from typing import IO, Any, Dict, Tuple, cast

import numpy as onp

from mxdp.backend import HostArray

COMMENT = (64).to_bytes(2, "little")
"""The length of a zip's comment, before the comment itself: the SHA-256 in hexadecimal digits."""
Arrays = Dict[str, HostArray]
Facts = Dict[str, Any]
UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile)
"""What :func:`read` raises for a file that is damaged or foreign."""


def write(path: Path, arrays: Arrays, text: str) -> None:
    """Write ``arrays`` and ``text`` (JSON), flush them to the disk, and only then give the file its name.

    Raises:
        OSError: it could not be written; nothing is left of it.
    """
    part = path.with_name(f"{path.name}.{os.uname().nodename}-{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            hashed, write_array = _Hashed(file), cast(Any, onp.lib.format.write_array)
            with zipfile.ZipFile(cast(Any, hashed), "w") as members:
                for name, array in {"facts": onp.array(text), **arrays}.items():
                    with members.open(f"{name}.npy", "w", force_zip64=True) as member:
                        write_array(member, array, allow_pickle=False)
            hashed.seal()
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


def read(path: Path) -> Tuple[Arrays, Facts]:
    """The arrays and the facts of a file, without pickle. It takes the memory of the arrays.

    Raises:
        UNREADABLE: it is damaged or no checkpoint.
    """
    with open(path, "rb") as file:
        check(file)
        with onp.load(file, allow_pickle=False) as members:
            arrays = {name: members[name] for name in members.files}
    was = json.loads(str(arrays.pop("facts")))
    return arrays, {name: was[name] for name in ("training", "replicas", "facts")}


def check(file: IO[bytes]) -> None:
    """Compare a file with the SHA-256 at its end, and go back to its start.

    Raises:
        ValueError: it is damaged.
    """
    content = file.seek(0, os.SEEK_END) - 66
    found, left = hashlib.sha256(), content
    file.seek(0)
    while left > 0:
        piece = file.read(min(left, 1 << 20))
        if not piece:
            break
        found.update(piece)
        left -= len(piece)
    if content < 0 or file.read() != COMMENT + found.hexdigest().encode():
        raise ValueError("damaged, or no checkpoint of mxdp: its checksum is wrong")
    file.seek(0)


class _Hashed:
    """A file to write to, which knows the SHA-256 of what was written. The last bytes wait for :meth:`seal`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash, self._last = file, hashlib.sha256(), b""

    def write(self, some: Any) -> int:
        """As a file's, for ``zipfile``."""
        if len(some):
            self._pass_on(self._last)
            self._last = bytes(some)
        return len(some)

    def flush(self) -> None:
        """As a file's; does nothing."""

    def seal(self) -> None:
        """Write the SHA-256 as the zip's comment, whose length, two bytes of 0, was written last."""
        self._pass_on(self._last[:-2])
        self._file.write(COMMENT + self._hash.hexdigest().encode())

    def _pass_on(self, some: bytes) -> None:
        self._hash.update(some)
        self._file.write(some)

"""A file whose bytes are known beforehand: is the file on the disk the right one, and if not, what is wrong?"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path

from mxdp.errors import DataError


class MissingFile(DataError):
    """There is no file of that name."""


class WrongFile(DataError):
    """The file's bytes are not those of the official file, or it can't be read."""


@dataclass(frozen=True)
class KnownFile:
    """A gzipped file: its name, its size in bytes, and the sha256 of its bytes in hexadecimal."""

    name: str
    size: int
    sha256: str

    def read(self, path: Path) -> bytes:
        """The bytes of the file at ``path``, checked to be the official ones.

        Raises:
            MissingFile: there is no file.
            WrongFile: truncated, damaged, another file, or unreadable; the message starts with the path and says which.
        """
        try:
            with path.open("rb") as file:
                # One byte too many is enough to show that it is another file.
                data = file.read(self.size + 1)
            length = path.stat().st_size
        except FileNotFoundError as error:
            raise MissingFile(f"{path} does not exist") from error
        except OSError as error:
            raise WrongFile(f"{path} can't be read ({error.strerror or error})") from error
        found = hashlib.sha256(data).hexdigest()
        if found == self.sha256:
            return data
        if len(data) == self.size:
            raise WrongFile(
                f"{path} is damaged (its sha256 is {found[:12]}..., the official file's {self.sha256[:12]}...)"
            )
        if len(data) < self.size and _lacks_its_end(data):
            raise WrongFile(f"{path} is truncated ({len(data)} of {self.size} bytes)")
        raise WrongFile(f"{path} is not the official file ({length} bytes instead of {self.size})")


def _lacks_its_end(data: bytes) -> bool:
    """Are these the first bytes of a gzip stream? No bytes at all count as a truncated stream."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        unpacker.decompress(data)
    except zlib.error:
        return False
    return not unpacker.eof

"""The files in a folder of checkpoints; helpers of the tests in this folder."""

from __future__ import annotations

import hashlib

from mxdp.processes.checkpoint_file import LOCK


def names(folder):
    """All files but the lock, which stays."""
    return sorted(path.name for path in folder.iterdir() if path.name != LOCK)


def numbered(*numbers):
    return [f"checkpoint-{number:06d}.npz" for number in numbers]


def sealed(path):
    """Give a zip file without a comment the checksum of a checkpoint."""
    content = path.read_bytes()[:-2]
    path.write_bytes(content + b"\x40\0" + hashlib.sha256(content).hexdigest().encode())

"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Union

from mxdp.errors import MxdpError, UsageError


def check_file(path: Path) -> None:
    """Raise a UsageError if ``path``, which is written later, after long work, is a folder."""
    if not path.name or path.is_dir():
        raise UsageError(f"{path} is a folder; give the name of a file in it")


def write_beside(path: Path, content: Union[str, bytes]) -> None:
    """Write ``content`` (text as UTF-8) to a file beside ``path`` and rename it, so that no reader meets half a file.
    Makes its folder. Raises a UsageError if ``path`` is a folder, an MxdpError if it can't be written."""
    check_file(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        os.replace(beside, path)
    except OSError as error:
        why = error.strerror or error
        raise MxdpError(
            f"{path} can't be written ({why}); make room or name another folder."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()

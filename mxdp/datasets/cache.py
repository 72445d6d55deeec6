"""The folder for mxdp's own downloads. Two processes may use it at once, and mxdp deletes only what mxdp wrote.

``mxdp-wrote.json`` lists the files that mxdp wrote here. A listed file that is damaged is deleted and downloaded again.
Any other file is not mxdp's, and stays. ``mxdp-failed.json`` remembers a failed download for an hour, so that a run of
many processes does not ask the network, and wait for it, in each.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import filelock

from mxdp.datasets.download import LIMITS, PART, Limits, Progress, fetch
from mxdp.datasets.known_file import KnownFile, MissingFile, WrongFile
from mxdp.errors import DataError, plural

MANIFEST = "mxdp-wrote.json"
FAILED = "mxdp-failed.json"
REMEMBERED = 3600.0
"""Seconds for which a failed download is not tried again."""
LOCK = "mxdp.lock"

Notify = Callable[[str], None]


def cache_root() -> Path:
    """``mxdp`` in ``$XDG_CACHE_HOME``, or in ``~/.cache`` if that is unset or not absolute.

    Raises:
        DataError: there is no home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "mxdp"
    try:
        return Path.home() / ".cache" / "mxdp"
    except RuntimeError as error:
        raise DataError("there is no home folder to keep a cache in; set XDG_CACHE_HOME to a folder") from error


def offline() -> bool:
    """Does the environment forbid the network? ``MXDP_OFFLINE`` is then set, and not to 0."""
    return os.environ.get("MXDP_OFFLINE", "0") not in ("", "0")


def obtain(
    folder: Path,
    files: Sequence[KnownFile],
    mirrors: Sequence[str],
    notify: Notify,
    progress: Optional[Progress] = None,
    limits: Limits = LIMITS,
) -> List[bytes]:
    """The contents of ``files``, in order, from ``folder``. Missing and damaged files are downloaded first.

    A complete cache is read without a lock, and nothing is written. Otherwise this waits, within ``limits``, for the
    lock while another process downloads, and for the network. ``notify`` is told what happens to a damaged file.

    Raises:
        DataError: a wrong file that mxdp did not write; the download failed, now or less than an hour ago, or
            MXDP_OFFLINE forbids it; the lock was not free in time; the folder can't be written.
    """
    try:
        return _read(folder, files)
    except (MissingFile, WrongFile) as error:
        if offline():
            raise DataError(f"{error}, and MXDP_OFFLINE forbids to download it") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder, notify, limits.lock):
            wanted = _sweep(folder, files, notify)
            if wanted:
                _check_failed(folder, wanted, mirrors)
                size = sum(file.size for file in wanted) / 1e6
                notify(f"downloading {len(wanted)} of {len(files)} files ({size:.1f} MB) into {folder}")
                try:
                    fetch(wanted, folder, mirrors, limits, progress, lambda file, url: _enter(folder, file, url))
                except DataError as error:
                    if not any(folder.glob(f"*{PART}")):  # what broke off is resumed, at once
                        _note_failed(folder, wanted, mirrors, str(error))
                    raise
            return _read(folder, files)
    except OSError as error:
        raise DataError(f"{error.filename or folder} can't be written ({error.strerror or error})") from error


def _read(folder: Path, files: Sequence[KnownFile]) -> List[bytes]:
    return [file.read(folder / file.name) for file in files]


def _sweep(folder: Path, files: Sequence[KnownFile], notify: Notify) -> List[KnownFile]:
    """The files to be downloaded. Damaged files that mxdp wrote are deleted; any other damaged file is an error."""
    ours = _manifest(folder)
    wanted = []
    for file in files:
        path = folder / file.name
        try:
            file.read(path)
            continue
        except MissingFile:
            pass
        except WrongFile as error:
            if file.name not in ours:
                raise DataError(
                    f"{error}, and mxdp did not write it; move it away, and mxdp downloads the official one"
                ) from error
            notify(f"{error}; mxdp wrote it, so it is deleted and fetched again")
            path.unlink()
        wanted.append(file)
    return wanted


def _manifest(folder: Path) -> Dict[str, Dict[str, str]]:
    """For each file that mxdp wrote, what it noted then. Empty if the list can't be read: then nothing is deleted."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}
    return files if isinstance(files, dict) else {}


def _enter(folder: Path, file: KnownFile, url: str) -> None:
    files = _manifest(folder)
    files[file.name] = {"sha256": file.sha256, "from": url}
    _write(folder / MANIFEST, {"schema_version": 1, "files": files})


def _write(path: Path, content: Dict[str, Any]) -> None:
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(beside, path)


def _asked(wanted: Sequence[KnownFile], mirrors: Sequence[str]) -> List[List[str]]:
    return [[file.name for file in wanted], list(mirrors)]


def _note_failed(folder: Path, wanted: Sequence[KnownFile], mirrors: Sequence[str], error: str) -> None:
    _write(folder / FAILED, {"asked": _asked(wanted, mirrors), "at": time.time(), "error": error})


def _check_failed(folder: Path, wanted: Sequence[KnownFile], mirrors: Sequence[str]) -> None:
    """Raise a DataError if the same download failed within the last hour; a new file in the folder makes it another."""
    try:
        note = json.loads((folder / FAILED).read_text(encoding="utf-8"))
        age, same, error = time.time() - note["at"], note["asked"] == _asked(wanted, mirrors), note["error"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return
    if same and 0 <= age < REMEMBERED:
        raise DataError(
            f"{error} {plural(round(age / 60), 'minute')} ago; mxdp tries again an hour after that, or as soon as "
            f"{folder / FAILED} is deleted"
        )


@contextlib.contextmanager
def _locked(folder: Path, notify: Notify, limit: float) -> Iterator[None]:
    lock = filelock.FileLock(str(folder / LOCK))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        notify(f"waiting for another process that downloads into {folder}")
        try:
            lock.acquire(timeout=limit, poll_interval=0.1)
        except filelock.Timeout as error:
            raise DataError(
                f"waited {limit:g} s for {folder / LOCK}, which another process holds while it downloads; "
                f"end that process or try again later"
            ) from error
    try:
        yield
    finally:
        lock.release()

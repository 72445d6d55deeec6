"""Reads files of known size and sha256 from a cache folder, and downloads missing ones from the first mirror that can.

No half-written file has the file's name. A failed download is remembered for an hour: many processes wait only once.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path
from typing import Callable, List, NamedTuple, Optional, Sequence
from urllib.parse import urlsplit

from mxdp.errors import DataError, missing

ANSWER = 5.0
"""Seconds to the first byte of a file."""
STALL = 10.0
"""Seconds between two pieces of a file."""
WAIT = 1800.0
"""Seconds for another process that downloads."""
REMEMBERED = 3600.0
"""Seconds until a failure is forgotten."""
SPEED = 20e3
"""Bytes a second that a mirror must send on average, after the first ``ANSWER`` seconds."""
LOCK = "mxdp.lock"
FAILED = "mxdp-failed.txt"

Notify = Callable[[str], None]
Progress = Callable[[str, int, int], None]


class KnownFile(NamedTuple):
    """A file's name, size in bytes, and sha256 in hexadecimal."""

    name: str
    size: int
    sha256: str

    def check(self, data: bytes, what: str) -> bytes:
        """``data``, if they are the file's bytes. Raises a DataError that begins with ``what`` if not."""
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise DataError(
                f"{what} is not the official file ({len(data)} of {self.size} bytes, wrong sha256)"
            )
        return data

    def read(self, folder: Path) -> bytes:
        """The file's bytes, from ``folder``. Raises a DataError that begins with its path if it is missing or wrong."""
        path = folder / self.name
        try:
            return self.check(path.read_bytes(), str(path))
        except OSError as error:
            raise DataError(f"{path} can't be read ({error.strerror})") from error


def obtain(
    folder: Path,
    files: Sequence[KnownFile],
    mirrors: Sequence[str],
    notify: Notify,
    progress: Optional[Progress],
) -> List[bytes]:
    """The contents of ``files`` in ``folder``. Downloads what is missing or wrong; a wrong file is renamed before.

    It locks and writes nothing if all files are there. ``mirrors`` end in a slash. Raises a DataError if a download
    failed in the last hour, ``MXDP_OFFLINE`` forbids it, its libraries are missing, or the folder can't be written.
    """
    try:
        return [file.read(folder) for file in files]
    except DataError as error:
        if offline():
            raise DataError(f"{error}, and MXDP_OFFLINE forbids downloading it") from error
        lacking = missing("the download", "data", "filelock", "requests", "urllib3")
        if lacking:
            raise DataError(f"{error}, and {lacking}") from error
    import filelock  # here, as requests below: most runs need neither, and importing them takes 0.1 s

    lock = filelock.FileLock(str(folder / LOCK))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            held = lock.acquire(timeout=0)
        except filelock.Timeout:
            notify(f"waiting for another process that downloads into {folder}")
            held = lock.acquire(timeout=WAIT)
        with held:
            _complete(folder, files, mirrors, notify, progress or (lambda *_: None))
    except filelock.Timeout as error:
        raise DataError(
            f"waited {WAIT:g} s for {lock.lock_file}; end the process that holds it"
        ) from error
    except OSError as error:
        raise DataError(
            f"{error.filename or folder} can't be written ({error.strerror or error})"
        ) from error
    return [file.read(folder) for file in files]


def offline() -> bool:
    """Whether ``MXDP_OFFLINE`` forbids downloads."""
    return os.environ.get("MXDP_OFFLINE", "0") not in ("", "0")


def failed_download(folder: Path) -> str:
    """Why the last download into this folder failed, if that was less than an hour ago: until then nobody tries again.
    Else nothing."""
    note = folder / FAILED
    if note.exists() and 0 <= time.time() - note.stat().st_mtime < REMEMBERED:
        return f"{note.read_text()} less than an hour ago; delete {note} to try again at once"
    return ""


def _complete(
    folder: Path,
    files: Sequence[KnownFile],
    mirrors: Sequence[str],
    notify: Notify,
    progress: Progress,
) -> None:
    wanted = []
    for file in files:
        try:
            file.read(folder)
        except DataError as error:
            wanted.append(file)
            path = folder / file.name
            if path.exists():
                path.rename(folder / f"{file.name}.wrong")
                notify(f"{error}; it is renamed to {file.name}.wrong and downloaded again")
    failure = failed_download(folder)
    if wanted and failure:
        raise DataError(failure)
    done = 0
    total = sum(file.size for file in wanted)
    if wanted:
        notify(
            f"downloading {len(wanted)} of {len(files)} files ({total / 1e6:.1f} MB) into {folder}"
        )
    for file in wanted:
        failures = []
        for mirror in mirrors:
            try:
                data = _receive(mirror + file.name, file, progress, done, total)
                break
            except DataError as error:
                failures.append(f"{urlsplit(mirror).netloc}: {error}")
        else:
            failure = f"{file.name} could not be downloaded ({'; '.join(failures)})"
            (folder / FAILED).write_text(failure)
            raise DataError(failure)
        part = folder / f"{file.name}.part"
        part.write_bytes(data)
        part.replace(folder / file.name)
        mirrors = [mirror, *(other for other in mirrors if other != mirror)]
        done += file.size
        progress(file.name, done, total)


def _receive(url: str, file: KnownFile, progress: Progress, done: int, total: int) -> bytes:
    """The file's bytes, checked. A thread receives them, because a name look-up has no time limit of its own."""
    import requests
    from urllib3.exceptions import HTTPError

    headers = {"Accept-Encoding": "identity"}
    data = bytearray()
    failures: List[str] = []
    given_up = threading.Event()

    def receive() -> None:
        try:
            with requests.get(url, headers=headers, stream=True, timeout=(ANSWER, STALL)) as answer:
                answer.raise_for_status()
                # Not decoded: some servers declare the .gz file's own compression as the transfer's.
                for block in iter(lambda: answer.raw.read1(1 << 16, decode_content=False), b""):
                    data.extend(block)
                    if given_up.is_set() or len(data) > file.size:
                        break
        except (requests.RequestException, HTTPError) as error:
            reason = getattr(error.args[0], "reason", error.args[0])
            proxy = getattr(reason, "original_error", None)
            said = str(proxy or reason)
            # Without the objects that it names first, and the address that it names last.
            for end in ("): ", ">: "):
                said = said.split(end, 1)[-1]
            said = said.split(" for url")[0]
            failures.append(f"the proxy: {said}" if proxy else said)

    thread = threading.Thread(target=receive, daemon=True)
    start = time.monotonic()
    thread.start()
    while thread.is_alive():
        if len(data) < SPEED * (time.monotonic() - start - ANSWER):
            given_up.set()
            raise DataError(f"slower than {SPEED / 1000:g} kB/s")
        thread.join(0.1)
        received = min(len(data), file.size)
        progress(f"{file.name} from {urlsplit(url).netloc}", done + received, total)
    if failures:
        raise DataError(failures[0])
    return file.check(bytes(data), "what it sent")

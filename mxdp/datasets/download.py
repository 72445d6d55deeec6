"""Downloads files whose bytes are known beforehand, from any mirror that has them.

::

    ask all mirrors at once whether they answer     5 s for all of them, so a missing network costs 5 s in all
    for each file, mirror by mirror:                a mirror that failed goes to the end of the row
        GET from where the .mxdp-part ends          once more if it broke off or did not fit
        sha256 right: rename to its name            wrong: delete the part, next mirror

A part that broke off is kept and resumed later, from the same or another mirror. The sha256 at the end shows whether it
fits.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Callable, Dict, List, Optional, Sequence
from urllib.parse import urlsplit

import requests
import urllib3

from mxdp.datasets.known_file import KnownFile, WrongFile
from mxdp.errors import DataError

PART = ".mxdp-part"
_BLOCK = 1 << 16

Progress = Callable[[str, int, int], None]
"""``progress(description, done_bytes, total_bytes)``; both numbers count all files of one call."""


@dataclass(frozen=True)
class Limits:
    """Time limits in seconds."""

    answer: float = 5.0
    """Until the mirrors have answered."""
    stall: float = 10.0
    """Between two pieces of a body."""
    total: float = 900.0
    """For all files together."""
    lock: float = 960.0
    """For another process, which may be downloading the same."""


LIMITS = Limits()


class _MirrorFailure(Exception):
    """This mirror can't deliver this file. The message says why in a few words."""


class _Broken(_MirrorFailure):
    """The body ended early. The part holds what has arrived."""


def fetch(
    files: Sequence[KnownFile],
    folder: Path,
    mirrors: Sequence[str],
    limits: Limits = LIMITS,
    progress: Optional[Progress] = None,
    arrived: Optional[Callable[[KnownFile, str], None]] = None,
) -> None:
    """Put ``files`` into ``folder``: each is written to a part, checked and renamed; then ``arrived(file, url)`` is
    called.

    ``mirrors`` are addresses that end in a slash. Waits for the network, at most ``limits.total`` and one
    ``limits.stall``. Only one process at a time: the caller holds the folder's lock.

    Raises:
        DataError: no mirror delivers a file (the message says what each did), or the time is over.
        OSError: the folder can't be written.
    """
    transfer = _Transfer(limits, progress, sum(file.size for file in files))
    probes = {mirror: _Probe(mirror + files[0].name, limits.answer) for mirror in mirrors}
    row = list(mirrors)
    for file in files:
        failures: Dict[str, List[str]] = {}
        for mirror in list(row):
            try:
                probes[mirror].check()
                transfer.get(mirror + file.name, folder, file)
            except _MirrorFailure as failure:
                failures.setdefault(str(failure), []).append(urlsplit(mirror).netloc)
                row.remove(mirror)
                row.append(mirror)
                continue
            if arrived:
                arrived(file, mirror + file.name)
            break
        else:
            told = "; ".join(f"{', '.join(hosts)}: {failure}" for failure, hosts in failures.items())
            raise DataError(f"{file.name} could not be downloaded ({told})")
        transfer.before += file.size


class _Probe(threading.Thread):
    """Asks one address for an answer. This needs a thread, because a name look-up has no time limit of its own."""

    def __init__(self, url: str, limit: float) -> None:
        super().__init__(daemon=True, name=f"mxdp probe of {url}")
        self._url = url
        self._limit = limit
        self._deadline = time.monotonic() + limit
        self._failure: Optional[str] = f"no answer within {limit:g} s"
        self.start()

    def run(self) -> None:
        try:
            requests.head(self._url, timeout=self._limit, allow_redirects=True).close()
            self._failure = None
        except requests.RequestException as error:
            self._failure = _in_few_words(error, self._limit)

    def check(self) -> None:
        """Wait for any answer. The limit counts from the start of the thread, not from here."""
        self.join(max(0.0, self._deadline - time.monotonic()))
        if self._failure:
            raise _MirrorFailure(self._failure)


class _Transfer:
    """What the downloads of one call share: the time left and the progress over all files."""

    def __init__(self, limits: Limits, progress: Optional[Progress], total: int) -> None:
        self.before = 0
        self._limits = limits
        self._deadline = time.monotonic() + limits.total
        self._progress = progress
        self._total = total

    def get(self, url: str, folder: Path, file: KnownFile) -> None:
        """Complete the part with at most two requests, check it and rename it.

        The first request may break off, or may resume a part that began with another mirror's or another file's bytes.
        """
        part = folder / (file.name + PART)
        for last in (False, True):
            start = part.stat().st_size if part.exists() else 0
            resumed = start > 0
            self._check_time(file)
            if start < file.size:
                try:
                    resumed = self._receive(url, part, start, file)
                except _Broken:
                    if last or part.stat().st_size <= start:
                        raise
                    continue
            try:
                file.read(part)
            except WrongFile as error:
                part.unlink()
                if resumed and not last:
                    continue
                raise _MirrorFailure("wrong bytes") from error
            os.replace(part, folder / file.name)
            return

    def _receive(self, url: str, part: Path, start: int, file: KnownFile) -> bool:
        """Append to the part, or write it anew if the server ignores the range. Returns whether it was resumed.

        A part that the server can't resume is not changed, and its sha256 will be wrong.
        """
        headers = {"Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        limits = self._limits
        try:
            response = requests.get(url, headers=headers, stream=True, timeout=(limits.answer, limits.stall))
        except requests.RequestException as error:
            raise _MirrorFailure(_in_few_words(error, limits.stall)) from error
        with response:
            fits = response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
            resumed = start > 0 and response.status_code == 206 and fits
            if start and not resumed and response.status_code in (206, 416):
                return True
            if response.status_code != 200 and not resumed:
                raise _MirrorFailure(f"{response.status_code} {response.reason}".strip())
            with part.open("ab" if resumed else "wb") as out:
                self._copy(response, out, start if resumed else 0, file)
        return resumed

    def _copy(self, response: requests.Response, out: BinaryIO, done: int, file: KnownFile) -> None:
        host = urlsplit(response.url).netloc
        while done <= file.size:
            if self._progress:
                self._progress(f"{file.name} from {host}", self.before + min(done, file.size), self._total)
            self._check_time(file)
            try:
                # read1 returns after one piece: a slow server can exceed the deadline by one stall at most.
                block = response.raw.read1(_BLOCK, decode_content=False)
            except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
                raise _Broken(f"broke off after {done} of {file.size} bytes") from error
            if not block:
                break
            out.write(block)
            done += len(block)
        if done < file.size:
            raise _Broken(f"broke off after {done} of {file.size} bytes")

    def _check_time(self, file: KnownFile) -> None:
        if time.monotonic() > self._deadline:
            raise DataError(
                f"{file.name} was not complete when the {self._limits.total:g} s for the download were over; "
                f"what has arrived is kept, and the next attempt goes on from there"
            )


def _in_few_words(error: requests.RequestException, limit: float) -> str:
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy does not answer"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate was not accepted"
    if isinstance(error, requests.exceptions.Timeout):
        return f"no answer within {limit:g} s"
    text = str(error)
    if "NameResolutionError" in text or "Failed to resolve" in text:
        return "its name can't be resolved"
    if "refused" in text:
        return "connection refused"
    return type(error).__name__

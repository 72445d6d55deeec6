"""``obtain``: what the cache holds, what is asked of which mirror, and what is said if that fails."""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import filelock
import pytest

import mxdp
from mxdp.datasets import fetch
from mxdp.datasets.fetch import FAILED, LOCK, obtain
from mxdp.errors import DataError

NAME = "train-labels-idx1-ubyte.gz"
FIRST = "train-images-idx3-ubyte.gz"


@pytest.fixture(autouse=True)
def _waits(monkeypatch):
    """A busy machine may be slow; tests of a limit set it."""
    monkeypatch.setattr(fetch, "ANSWER", 20.0)
    monkeypatch.setattr(fetch, "STALL", 20.0)
    monkeypatch.setattr(fetch, "WAIT", 0.3)
    monkeypatch.setenv("MXDP_OFFLINE", "")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "fashion-mnist"


@pytest.fixture
def said():
    return []


@pytest.fixture
def get(server, made_up, folder, said):
    """Obtain the made-up files, by default from a good mirror; the contents must be right."""

    def run(*mirrors, progress=None):
        mirrors = mirrors or [server.mirror("good", made_up.contents)]
        assert obtain(folder, made_up.files, mirrors, said.append, progress) == list(made_up.contents.values())

    return run


@pytest.fixture
def fails(get, folder):
    """Obtain them from mirrors that can't deliver the first file: what is said of each, without the host."""

    def run(*mirrors):
        with pytest.raises(DataError) as caught:
            get(*mirrors)
        assert not (folder / FIRST).exists()
        told = re.fullmatch(rf"{FIRST} could not be downloaded \((.*)\)", str(caught.value))
        assert told, caught.value
        return [failure.split(": ", 1)[1] for failure in told[1].split("; ")]

    return run


def sends(data, handler, length=None):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data) if length is None else length))
    handler.end_headers()
    handler.wfile.write(data)
    handler.wfile.flush()


# What the cache holds


def test_an_empty_cache_is_filled_then_read_and_only_what_is_missing_is_fetched(server, made_up, folder, said, get):
    for _ in range(2):
        get()
    assert server.requests == [f"good/{name}" for name in made_up.contents]
    assert said == [f"downloading 4 of 4 files (0.1 MB) into {folder}"]
    assert sorted(os.listdir(folder)) == sorted([LOCK, *made_up.contents])
    (folder / NAME).unlink()
    get()
    assert server.requests[4:] == [f"good/{NAME}"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-5],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"",
        lambda data: data + b"x",
        lambda data: b"somebody's notes",
    ],
)
def test_a_wrong_file_is_named_renamed_and_fetched_again(server, folder, get, said, damage):
    get()
    size = (folder / NAME).stat().st_size
    wrong = damage((folder / NAME).read_bytes())
    (folder / NAME).write_bytes(wrong)
    del said[:]
    get()

    assert server.requests[4:] == [f"good/{NAME}"]
    assert said[0] == (
        f"{folder / NAME} is not the official file ({len(wrong)} of {size} bytes, wrong sha256); "
        f"it is renamed to {NAME}.wrong and downloaded again"
    )
    assert (folder / f"{NAME}.wrong").read_bytes() == wrong


def test_a_folder_in_a_files_place_is_renamed_too(folder, get, said):
    (folder / NAME / "inner").mkdir(parents=True)
    get()

    assert said[0].startswith(f"{folder / NAME} can't be read (Is a directory); it is renamed")
    assert (folder / f"{NAME}.wrong" / "inner").is_dir()


@pytest.mark.parametrize("offline", ["", "0", "1"])
def test_right_files_that_somebody_put_there_are_read_and_nothing_is_written(
    put, made_up, folder, get, server, said, monkeypatch, offline
):
    monkeypatch.setenv("MXDP_OFFLINE", offline)
    put(folder)
    get()
    assert sorted(os.listdir(folder)) == sorted(made_up.contents)
    assert (server.requests, said) == ([], [])


@pytest.mark.parametrize("damaged", [True, False])
def test_offline_asks_nobody_and_renames_nothing(server, folder, get, monkeypatch, damaged):
    get()
    (folder / NAME).unlink()
    if damaged:
        (folder / NAME).write_bytes(b"?")
    asked = len(server.requests)
    monkeypatch.setenv("MXDP_OFFLINE", "1")

    with pytest.raises(DataError, match=rf"{NAME} .*, and MXDP_OFFLINE forbids downloading it$"):
        get()

    assert len(server.requests) == asked
    assert (folder / NAME).exists() == damaged


def test_a_cache_that_can_not_be_written(server, made_up, tmp_path, said):
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(DataError, match=r"file.* can't be written \((Not a directory|File exists)\)$"):
        obtain(tmp_path / "file" / "x", made_up.files, [server.mirror("good", made_up.contents)], said.append, None)


def test_a_full_disk_leaves_no_half_file_of_that_name(folder, get, monkeypatch):
    def half(path, data):
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", half)
        with pytest.raises(DataError, match=rf"^{folder} can't be written \(No space left on device\)$"):
            get()
        assert not (folder / FIRST).exists()
    get()


# Several processes


def test_waiting_for_the_lock_ends_and_says_for_what(server, folder, get, said):
    folder.mkdir(parents=True)

    with filelock.FileLock(str(folder / LOCK)), pytest.raises(DataError) as caught:
        get()

    assert str(caught.value) == f"waited 0.3 s for {folder / LOCK}; end the process that holds it"
    assert said == [f"waiting for another process that downloads into {folder}"]
    assert server.requests == []


CHILD = """
from pathlib import Path
from mxdp.datasets.fetch import KnownFile, obtain
print("ready", flush=True)
input()
print(*map(len, obtain(Path({folder!r}), {files}, [{mirror!r}], lambda line: None, None)))
"""


def test_two_processes_at_once_download_each_file_once(server, made_up, folder, whole_answer):
    """The first answer waits long enough for the second process to have come as far as the first."""
    late = threading.Event()

    def slow(handler, data):
        late.wait(1.0)
        late.set()
        whole_answer(handler, data)

    mirror = server.mirror("slow", made_up.contents, slow)
    code = CHILD.format(folder=str(folder), files=made_up.files, mirror=mirror)
    environment = {**os.environ, "PYTHONPATH": str(Path(mxdp.__path__[0]).parent)}
    options = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
    children = [subprocess.Popen([sys.executable, "-c", code], **options) for _ in range(2)]
    try:
        assert [child.stdout.readline() for child in children] == ["ready\n", "ready\n"]
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        sizes = " ".join(str(file.size) for file in made_up.files)
        assert [child.communicate(timeout=60)[0] for child in children] == [sizes + "\n"] * 2
    finally:
        for child in children:
            child.kill()
            child.wait()

    assert [child.returncode for child in children] == [0, 0]
    assert sorted(server.requests) == sorted(f"slow/{name}" for name in made_up.contents)


def test_a_failed_download_is_remembered_for_an_hour(server, get, fails, folder):
    empty = server.mirror("empty", {})
    fails(empty)
    for minutes, asked in ((0, False), (58, False), (61, True), (58, False), (-5, True)):  # -5: the clock was set back
        age = time.time() - 60 * minutes
        os.utime(folder / FAILED, (age, age))
        before = len(server.requests)
        with pytest.raises(DataError) as caught:
            get(empty)
        assert (len(server.requests) > before) == asked, minutes
        again = f" less than an hour ago; delete {folder / FAILED} to try again at once"
        assert str(caught.value).endswith(": 404 Client Error: Not Found)" + ("" if asked else again))

    assert sorted(os.listdir(folder)) == sorted([FAILED, LOCK]), "nothing half-written"
    (folder / FAILED).unlink()
    get()
    (folder / FAILED).touch()
    get()  # a complete cache does not look at failures


# What is asked of which mirror


def test_progress_is_told_while_a_file_arrives_and_runs_to_the_total(server, made_up, get):
    more, seen = threading.Event(), []

    def in_two_pieces(handler, data):
        sends(data[:100], handler, len(data))
        more.wait(10)
        handler.wfile.write(data[100:])

    def progress(*entry):
        seen.append(entry)
        if entry[1] >= 100:
            more.set()

    get(server.mirror("pieces", made_up.contents, in_two_pieces), progress=progress)
    done, total = [entry[1] for entry in seen], sum(file.size for file in made_up.files)
    assert (f"{FIRST} from {server.address[len('http://') :]}", 100, total) in seen
    assert seen[-1][1:] == (total, total)
    assert {entry[2] for entry in seen} == {total}
    assert done == sorted(done)
    assert made_up.files[0].size in done
    assert {entry[0].split()[0] for entry in seen} == set(made_up.contents)


def test_a_body_that_breaks_off_is_fetched_from_the_next_mirror(server, made_up, get, folder):
    weak = server.mirror("weak", made_up.contents, lambda handler, data: sends(data[:20], handler, len(data)))

    get(weak, server.mirror("good", made_up.contents))

    assert server.requests == [f"weak/{FIRST}", *(f"good/{name}" for name in made_up.contents)]


@pytest.mark.parametrize("longer", [-1, 0, 1, 100_000])
def test_wrong_bytes_are_never_kept(server, made_up, get, longer):
    mirror = server.mirror("wrong", {**made_up.contents, FIRST: b"?" * (made_up.files[0].size + longer)})

    get(mirror, server.mirror("good", made_up.contents))

    assert server.requests[:2] == [f"wrong/{FIRST}", f"good/{FIRST}"]


def test_the_mirror_that_delivered_is_asked_first_for_the_next_file(server, made_up, get):
    poor = {name: data for name, data in made_up.contents.items() if name != FIRST}
    but_last = {name: data for name, data in made_up.contents.items() if name != made_up.files[-1].name}

    get(server.mirror("poor", poor), server.mirror("good", but_last))

    names = list(made_up.contents)
    assert server.requests == [f"poor/{FIRST}", *(f"good/{name}" for name in names), f"poor/{names[-1]}"]


@pytest.mark.parametrize("headers", [["Content-Encoding", "Content-Length"], []])
def test_a_body_marked_as_gzip_is_kept_as_it_is_and_one_without_a_length_is_taken(server, made_up, get, headers):
    """Some servers declare a .gz file's own compression as the transfer's; unpacking it would change the bytes."""

    def answer(handler, data):
        assert handler.headers["Accept-Encoding"] == "identity"
        handler.send_response(200)
        for name in headers:
            handler.send_header(name, "gzip" if name == "Content-Encoding" else str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
        handler.close_connection = not headers

    get(server.mirror("marked", made_up.contents, answer))


def test_an_endless_body_is_not_received_to_its_end(server, made_up, get):
    closed = threading.Event()

    def endless(handler, data):
        try:
            while not server.over.is_set():
                handler.wfile.write(b"?" * 10_000)
        except OSError:
            closed.set()

    def starts(handler, data):
        handler.send_response(200)
        handler.end_headers()
        endless(handler, data)

    get(server.mirror("endless", made_up.contents, starts), server.mirror("good", made_up.contents))

    assert closed.wait(10)


# What is said if it fails, and that it ends in time


def test_all_mirrors_fail_and_one_sentence_says_how(server, made_up, get, folder):
    wrong = server.mirror("wrong", {FIRST: b"?"})
    broken = server.mirror("broken", {FIRST: b"?"}, lambda handler, data: sends(b"x" * 10, handler, 1000))
    host = server.address[len("http://") :]

    with pytest.raises(DataError) as caught:
        get(server.mirror("none", {}), wrong, broken)

    assert str(caught.value) == (
        f"{FIRST} could not be downloaded ({host}: 404 Client Error: Not Found; "
        f"{host}: what it sent is not the official file (1 of {made_up.files[0].size} bytes, wrong sha256); "
        f"{host}: Connection broken: IncompleteRead(10 bytes read, 990 more expected))"
    )


@pytest.mark.parametrize("sent", [0, 20])
def test_a_server_that_falls_silent_after_the_request_or_in_the_body(server, made_up, fails, monkeypatch, sent):
    def silent(handler, data):
        if sent:
            sends(data[:sent], handler, len(data))
        server.over.wait(30)

    monkeypatch.setattr(fetch, "STALL", 0.5)
    (failure,) = fails(server.mirror("silent", made_up.contents, silent))
    assert failure.startswith("Read timed out.")


def test_a_server_that_sends_too_slowly_is_given_up(server, made_up, fails, monkeypatch):
    """Each piece comes within ``STALL``, so only the speed can end this."""
    closed = threading.Event()

    def drips(handler, data):
        sends(b"", handler, len(data))
        for start in range(len(data)):
            if server.over.wait(0.05):
                return
            try:
                handler.wfile.write(data[start : start + 1])
            except OSError:
                closed.set()
                return

    monkeypatch.setattr(fetch, "ANSWER", 0.5)
    start = time.monotonic()

    assert fails(server.mirror("drips", made_up.contents, drips)) == ["slower than 20 kB/s"]

    assert time.monotonic() - start < 10
    assert closed.wait(10), "the thread that receives has ended, too"


def test_a_slow_mirror_that_keeps_the_smallest_speed_is_waited_for(server, made_up, get, monkeypatch):
    def steady(handler, data):
        sends(b"", handler, len(data))
        for start in range(0, len(data), 1000):
            if server.over.wait(0.02):
                return
            handler.wfile.write(data[start : start + 1000])

    monkeypatch.setattr(fetch, "ANSWER", 0.3)
    monkeypatch.setattr(fetch, "SPEED", 1000.0)
    get(server.mirror("steady", made_up.contents, steady))


def test_a_name_lookup_that_hangs_is_given_up(fails, monkeypatch, server):
    def hangs(*arguments, **keywords):
        server.over.wait(30)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    monkeypatch.setattr(fetch, "ANSWER", 0.2)

    assert fails("http://mirror.invalid/") == ["slower than 20 kB/s"]


def test_an_unknown_host_in_the_librarys_words(fails, monkeypatch):
    error = socket.gaierror(-2, "Name or service not known")
    monkeypatch.setattr(socket, "getaddrinfo", Mock(side_effect=error))
    assert fails("http://mirror.invalid/") == [f"Failed to resolve 'mirror.invalid' ({error})"]

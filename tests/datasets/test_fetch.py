"""``obtain``: what the cache holds, what is asked of which mirror, and what is said if that fails."""

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path

import filelock
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxdp.datasets import fetch
from mxdp.datasets.fetch import FAILED, LOCK, obtain
from mxdp.errors import DataError

FIRST = "train-images-idx3-ubyte.gz"


@pytest.fixture(autouse=True)
def _waits(monkeypatch):
    """A busy machine may be slow; tests of a limit set it."""
    monkeypatch.setattr(fetch, "ANSWER", 20.0)
    monkeypatch.setattr(fetch, "STALL", 20.0)
    monkeypatch.setattr(fetch, "WAIT", 20.0)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "fashion-mnist"


@pytest.fixture
def get(server, made_up, folder):
    """Obtain the made-up files, by default from a good mirror; the contents must be right."""

    def run(*mirrors, notify=lambda line: None, progress=None):
        mirrors = mirrors or [server.mirror("good", made_up.contents)]
        assert obtain(folder, made_up.files, mirrors, notify, progress) == list(made_up.contents.values())

    return run


@pytest.fixture
def fails(get, folder):
    """Obtain them from mirrors that can't deliver the first file: what is said of each, without the host."""

    def run(*mirrors):
        with pytest.raises(DataError, match=rf"^{FIRST} could not be downloaded \(") as caught:
            get(*mirrors)
        assert not (folder / FIRST).exists()
        failures = str(caught.value).partition("(")[2].rpartition(")")[0]
        return [failure.split(": ", 1)[1] for failure in failures.split("; ")]

    return run


IN_CACHE = ["right", "missing", "cut off", "longer", "changed", "a folder"]
ANSWERS = ["right", "none", "breaks off", "changed", "longer"]


def answers(kinds, made_up):
    """The contents of a mirror, and a server's behaviour for it; ``kinds``: of its answers, by file."""
    contents = {file.name: made_up.contents[file.name] for file, kind in zip(made_up.files, kinds) if kind != "none"}
    of_file = {file.name: kind for file, kind in zip(made_up.files, kinds)}

    def get(handler, data):
        kind = of_file[handler.path.rpartition("/")[2]]
        body = damaged(data, kind)
        handler.sends(body[:20] if kind == "breaks off" else body, len(body))

    return contents, get


def damaged(data, kind):
    changed = data[:-1] + bytes([data[-1] ^ 1])
    return {"longer": data + b"x", "changed": changed, "cut off": data[:-5]}.get(kind, data)


def put(path, data, kind):
    if kind == "a folder":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes(damaged(data, kind))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cached=st.lists(st.sampled_from(IN_CACHE), min_size=4, max_size=4),
    mirrors=st.lists(st.lists(st.sampled_from(["right", *ANSWERS]), min_size=4, max_size=4), max_size=3),
    offline=st.sampled_from(["", "0", "1"]),
)
def test_each_file_that_lacks_comes_from_the_first_mirror_that_can(
    cached, mirrors, offline, server, made_up, tmp_path_factory, monkeypatch
):
    """The mirror that has delivered is asked first for the next file. A wrong one is renamed. Offline none is asked."""
    monkeypatch.setenv("MXDP_OFFLINE", offline)
    folder = tmp_path_factory.mktemp("cache")
    for (name, data), kind in zip(made_up.contents.items(), cached):
        put(folder / name, data, kind)
    before = sorted(os.listdir(folder))
    del server.requests[:]
    addresses = [server.mirror(str(at), *answers(kinds, made_up)) for at, kinds in enumerate(mirrors)]
    lacks = [file for file, kind in zip(made_up.files, cached) if kind != "right"]
    expected, order, problem = [], list(range(len(mirrors))), "forbids" if lacks and offline == "1" else ""
    for at, file in enumerate(made_up.files):
        asked = order if file in lacks and not problem else []
        good = next((mirror for mirror in asked if mirrors[mirror][at] == "right"), None)
        tried = asked if good is None else asked[: asked.index(good) + 1]
        expected += [f"{mirror}/{file.name}" for mirror in tried]
        if file in lacks and good is None:
            problem = problem or "could not be downloaded"
        order = sorted(order, key=lambda mirror: mirror != good)

    said = []
    with pytest.raises(DataError, match=problem) if problem else nullcontext():
        assert obtain(folder, made_up.files, addresses, said.append, None) == list(made_up.contents.values())
    assert server.requests == expected
    if problem == "forbids" or not lacks:
        assert (sorted(os.listdir(folder)), said) == (before, [])
        return
    sentences = []
    for file, kind in zip(made_up.files, cached):
        kept = folder / f"{file.name}.wrong"
        assert kept.exists() == (kind not in ("right", "missing"))
        why = "can't be read (Is a directory)"
        if kept.is_file():
            wrong = damaged(made_up.contents[file.name], kind)
            assert kept.read_bytes() == wrong
            why = f"is not the official file ({len(wrong)} of {file.size} bytes, wrong sha256)"
        if kept.exists():
            sentences.append(f"{folder / file.name} {why}; it is renamed to {file.name}.wrong and downloaded again")
    size = sum(file.size for file in lacks) / 1e6
    assert said == [*sentences, f"downloading {len(lacks)} of 4 files ({size:.1f} MB) into {folder}"]
    here = {path.name for path in folder.iterdir() if path.suffix != ".wrong"}
    assert here - {*made_up.contents} == {LOCK, *([FAILED] if problem else [])}


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
    folder.rename(folder.with_name("elsewhere"))
    folder.write_text("in the way")
    with pytest.raises(DataError, match=r"fashion-mnist.* can't be written \((Not a directory|File exists)\)$"):
        get()


def test_waiting_for_the_lock_ends_and_says_for_what(server, folder, get, monkeypatch):
    monkeypatch.setattr(fetch, "WAIT", 0.3)
    folder.mkdir(parents=True)
    said = []
    with filelock.FileLock(str(folder / LOCK)), pytest.raises(DataError) as caught:
        get(notify=said.append)
    assert str(caught.value) == f"waited 0.3 s for {folder / LOCK}; end the process that holds it"
    assert said == [f"waiting for another process that downloads into {folder}"]
    assert server.requests == []


def test_two_at_once_download_each_file_once(server, made_up, get):
    """The first answer waits long enough for the second to have come as far as the first."""
    late = threading.Event()

    def slow(handler, data):
        late.wait(0.3)
        late.set()
        handler.sends(data)

    mirror = server.mirror("slow", made_up.contents, slow)
    with ThreadPoolExecutor() as both:
        for done in [both.submit(get, mirror) for _ in range(2)]:
            done.result(60)
    assert sorted(server.requests) == sorted(f"slow/{name}" for name in made_up.contents)


def test_a_failed_download_is_remembered_for_an_hour(server, get, fails, folder):
    empty = server.mirror("empty", {})
    fails(empty)
    again = f" less than an hour ago; delete {folder / FAILED} to try again at once"
    for minutes, asked in ((0, False), (58, False), (61, True), (-5, True)):  # -5: the clock was set back
        age = time.time() - 60 * minutes
        os.utime(folder / FAILED, (age, age))
        before = len(server.requests)
        with pytest.raises(DataError) as caught:
            get(empty)
        assert (len(server.requests) > before) == asked, minutes
        assert str(caught.value).endswith(": 404 Client Error: Not Found)" + ("" if asked else again))
    (folder / FAILED).unlink()
    get()
    (folder / FAILED).touch()
    get()  # a complete cache does not look at failures


def test_progress_is_told_while_a_file_arrives_and_runs_to_the_total(server, made_up, get):
    more, seen = threading.Event(), []

    def in_two_pieces(handler, data):
        handler.sends(data[:100], len(data))
        more.wait(10)
        handler.wfile.write(data[100:])

    def progress(*entry):
        seen.append(entry)
        if entry[1] >= 100:
            more.set()

    get(server.mirror("pieces", made_up.contents, in_two_pieces), progress=progress)
    done, total = [entry[1] for entry in seen], sum(file.size for file in made_up.files)
    assert (f"{FIRST} from {server.address[len('http://') :]}", 100, total) in seen
    assert {entry[2] for entry in seen} == {total}
    assert (done, done[-1]) == (sorted(done), total)
    assert {entry[0].split()[0] for entry in seen} == set(made_up.contents)


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


def test_of_each_mirror_is_said_how_it_failed(server, made_up, fails):
    wrong = server.mirror("wrong", {FIRST: b"?"})
    broken = server.mirror("broken", {FIRST: b"?"}, lambda handler, data: handler.sends(b"x" * 10, 1000))
    assert fails(server.mirror("none", {}), wrong, broken) == [
        "404 Client Error: Not Found",
        f"what it sent is not the official file (1 of {made_up.files[0].size} bytes, wrong sha256)",
        "Connection broken: IncompleteRead(10 bytes read, 990 more expected)",
    ]


def pouring(server, piece, closed):
    """A server that sends the piece again and again, until it is left, and says then that it is ``closed``."""

    def pours(handler, data):
        with suppress(OSError):
            handler.sends(b"", 10**12)
            while not server.over.wait(0.05 if len(piece) == 1 else 0):
                handler.wfile.write(piece)
        closed.set()

    return pours


def test_an_endless_body_is_not_received_to_its_end(server, made_up, get):
    closed = threading.Event()
    endless = pouring(server, b"?" * 10_000, closed)
    get(server.mirror("endless", made_up.contents, endless), server.mirror("good", made_up.contents))
    assert closed.wait(10)


def test_a_server_that_falls_silent_and_one_that_sends_too_slowly_are_given_up(server, made_up, fails, monkeypatch):
    """Each piece comes within ``STALL``, so only the speed can end it."""
    closed = threading.Event()

    def silent(handler, data):
        handler.sends(data[:20], len(data))
        server.over.wait(30)

    monkeypatch.setattr(fetch, "STALL", 0.5)
    (failure,) = fails(server.mirror("silent", made_up.contents, silent))
    assert failure.startswith("Read timed out.")
    monkeypatch.setattr(fetch, "ANSWER", 0.2)
    monkeypatch.setattr(fetch, "REMEMBERED", 0)
    drips = pouring(server, b"x", closed)
    assert fails(server.mirror("drips", made_up.contents, drips)) == ["slower than 20 kB/s"]
    assert closed.wait(10), "the thread that receives has ended, too"

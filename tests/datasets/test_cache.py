from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import filelock
import pytest

import mxdp
from mxdp.datasets import cache
from mxdp.datasets.cache import FAILED, LOCK, MANIFEST, cache_root, obtain
from mxdp.datasets.download import Limits
from mxdp.errors import DataError

FAST = Limits(answer=2, stall=2, total=20, lock=0.3)
NAME = "train-labels-idx1-ubyte.gz"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "fashion-mnist"


@pytest.fixture
def said():
    return []


@pytest.fixture
def get(server, made_up, folder, said):
    """Obtain the made-up files from a good mirror; the contents must be right."""
    mirror = server.mirror("good", made_up.contents)

    def run():
        assert obtain(folder, made_up.files, [mirror], said.append, limits=FAST) == list(made_up.contents.values())

    return run


def test_an_empty_cache_is_filled_and_the_second_time_read(server, made_up, folder, said, get):
    get()
    first = server.gets()
    get()

    assert first == [(f"good/{name}", None) for name in made_up.contents]
    assert server.gets() == first
    assert [line.startswith("downloading 4 of 4 files (0.1 MB) into ") for line in said] == [True]


def test_what_we_wrote_is_listed(made_up, folder, server, get):
    get()

    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["schema_version"] == 1
    assert manifest["files"] == {
        file.name: {"sha256": file.sha256, "from": f"{server.address}/good/{file.name}"} for file in made_up.files
    }
    assert sorted(path.name for path in folder.iterdir() if path.name != LOCK) == sorted([MANIFEST, *made_up.contents])


def test_only_what_is_missing_is_fetched(server, folder, get):
    get()
    (folder / NAME).unlink()
    get()

    assert server.gets()[4:] == [(f"good/{NAME}", None)]


@pytest.mark.parametrize("damage", [lambda data: data[:-5], lambda data: data[:-1] + b"?", lambda data: b""])
def test_a_damaged_file_of_ours_is_named_deleted_and_fetched_again(server, folder, get, said, damage):
    get()
    (folder / NAME).write_bytes(damage((folder / NAME).read_bytes()))
    del said[:]
    get()

    assert server.gets()[4:] == [(f"good/{NAME}", None)]
    assert len(said) == 2
    assert said[0].startswith(f"{folder / NAME} is ")
    assert said[0].endswith("; mxdp wrote it, so it is deleted and fetched again")
    assert "\n" not in said[0]


def test_a_wrong_file_of_somebody_else_is_named_and_stays(server, made_up, folder, get, said):
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(b"somebody's notes")

    with pytest.raises(DataError) as caught:
        get()

    assert str(caught.value).startswith(f"{folder / NAME} is not the official file (16 bytes instead of ")
    assert "mxdp did not write it; move it away" in str(caught.value)
    assert (folder / NAME).read_bytes() == b"somebody's notes"
    assert server.requests == []
    assert said == []


def test_right_files_that_somebody_put_there_are_read_and_never_claimed(made_up, folder, get, server, said):
    folder.mkdir(parents=True)
    for name, data in made_up.contents.items():
        (folder / name).write_bytes(data)
    get()

    assert sorted(os.listdir(folder)) == sorted(made_up.contents)
    assert (server.requests, said) == ([], [])


@pytest.mark.parametrize("content", ["", "{", "[]", '{"files": 3}', '{"files": ["' + NAME + '"]}'])
def test_an_unreadable_list_claims_nothing(folder, get, content):
    get()
    (folder / MANIFEST).write_text(content)
    (folder / NAME).write_bytes(b"?")

    with pytest.raises(DataError, match="mxdp did not write it"):
        get()

    assert (folder / NAME).read_bytes() == b"?"


def test_offline_reads_the_cache(folder, get, monkeypatch):
    get()
    monkeypatch.setenv("MXDP_OFFLINE", "1")
    get()


@pytest.mark.parametrize("damaged", [True, False])
def test_offline_asks_nobody_and_deletes_nothing(server, folder, get, monkeypatch, damaged):
    get()
    (folder / NAME).unlink()
    if damaged:
        (folder / NAME).write_bytes(b"?")
    asked = len(server.requests)
    monkeypatch.setenv("MXDP_OFFLINE", "1")

    with pytest.raises(DataError, match=rf"{NAME} .*, and MXDP_OFFLINE forbids to download it$"):
        get()

    assert len(server.requests) == asked
    assert (folder / NAME).exists() == damaged


def test_offline_set_to_0_is_not_offline(get, monkeypatch):
    monkeypatch.setenv("MXDP_OFFLINE", "0")
    get()


def test_waiting_for_the_lock_ends_and_says_for_what(server, folder, get, said):
    folder.mkdir(parents=True)

    with filelock.FileLock(str(folder / LOCK)), pytest.raises(DataError) as caught:
        get()

    assert str(caught.value).startswith(
        f"waited 0.3 s for {folder / LOCK}, which another process holds while it downloads"
    )
    assert said == [f"waiting for another process that downloads into {folder}"]
    assert server.requests == []


def test_the_lock_is_free_again_after_a_failure(server, made_up, folder, get, said):
    with pytest.raises(DataError, match="could not be downloaded"):
        obtain(folder, made_up.files, [server.mirror("none", {})], said.append, limits=FAST)
    get()


def test_a_cache_that_can_not_be_written(server, made_up, tmp_path, said):
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(DataError, match=r"file.* can't be written \((Not a directory|File exists)\)$"):
        obtain(tmp_path / "file" / "x", made_up.files, [server.mirror("good", made_up.contents)], said.append)


CHILD = """
import sys
from pathlib import Path
from mxdp.datasets.cache import obtain
from mxdp.datasets.download import Limits
from mxdp.datasets.known_file import KnownFile
folder, mirror, *files = sys.argv[1:]
files = [KnownFile(*(kind(part) for kind, part in zip((str, int, str), file.split()))) for file in files]
print("ready", flush=True)
sys.stdin.readline()
contents = obtain(Path(folder), files, [mirror], lambda line: None, limits=Limits(lock=30))
print(*map(len, contents))
"""


def test_two_processes_at_once_download_each_file_once(server, made_up, folder, whole_answer):
    """The first answer waits long enough for the second process to have come as far as the first."""
    late = threading.Event()

    def slow(handler, data):
        late.wait(1.5)
        late.set()
        whole_answer(handler, data)

    mirror = server.mirror("slow", made_up.contents, slow)
    files = [f"{file.name} {file.size} {file.sha256}" for file in made_up.files]
    environment = {**os.environ, "PYTHONPATH": str(Path(mxdp.__path__[0]).parent)}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder), mirror, *files],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for _ in range(2)
    ]
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
    assert sorted(server.gets()) == sorted((f"slow/{name}", None) for name in made_up.contents)


def test_the_cache_lies_under_xdg_cache_home_or_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/where")
    assert cache_root() == Path("/some/where/mxdp")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/not/allowed")
    assert cache_root() == tmp_path / ".cache" / "mxdp"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == tmp_path / ".cache" / "mxdp"


def test_no_home_folder_at_all(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)

    with pytest.raises(DataError, match="no home folder to keep a cache in; set XDG_CACHE_HOME"):
        cache_root()


@pytest.fixture
def failing(server, made_up, folder, said):
    """Ask mirrors that have none of the files: the error, and how many requests they got."""

    def run(*mirrors, files=made_up.files):
        before = len(server.requests)
        with pytest.raises(DataError, match=r"could not be downloaded .*404 Not Found") as caught:
            obtain(folder, files, [server.mirror(name, {}) for name in mirrors], said.append, limits=FAST)
        return str(caught.value), len(server.requests) - before

    return run


def test_a_failed_download_is_remembered_for_an_hour(failing, get, folder, monkeypatch):
    first, asked = failing("empty")
    again, asked_again = failing("empty")
    assert asked > 0
    assert asked_again == 0
    assert again.startswith(f"{first} 0 minutes ago; mxdp tries again an hour after that, or as soon as ")
    assert again.endswith(f"{folder / FAILED} is deleted")
    now = cache.time.time()
    for later, is_asked in ((3500, False), (3700, True), (3700 + 3500, False), (0, True)):  # back: the clock was set
        monkeypatch.setattr(cache.time, "time", lambda later=later: now + later)
        assert bool(failing("empty")[1]) == is_asked, later
    assert sorted(path.name for path in folder.iterdir()) == sorted([FAILED, LOCK]), "nothing half-written"


def test_what_makes_it_another_download_is_tried_at_once(failing, made_up, folder, get):
    for mirrors in (["empty"], ["other"], ["other", "empty"]):
        assert failing(*mirrors)[1] > 0
    (folder / NAME).write_bytes(made_up.contents[NAME])
    assert failing("other", "empty")[1] > 0, "a new file"
    (folder / FAILED).unlink()
    assert failing("other", "empty")[1] > 0
    (folder / FAILED).write_text("no JSON")
    assert failing("other", "empty")[1] > 0
    get()


def test_a_complete_cache_does_not_look_at_failures(failing, made_up, folder, get):
    failing("good")
    for name, data in made_up.contents.items():
        (folder / name).write_bytes(data)
    get()

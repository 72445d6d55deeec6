"""The files of checkpoints: whatever happens to the disk or the process, a whole one is left."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile

import fake_mpi
import numpy as onp
import pytest
from gate import Gate
from kept import names, numbered, sealed

from mxdp.backend import mx, np, npx
from mxdp.errors import BackendError, MxdpError
from mxdp.experiments.memory_use import grown
from mxdp.gluon import Checkpoint
from mxdp.processes import CheckpointFolder, checkpoint, checkpoint_file

HEADER = {"training": {"seed": 0}, "replicas": "1 device"}


def saved(folder, *values, keep=3):
    """A folder with a checkpoint for each value, and its lines."""
    lines = []
    made = CheckpointFolder(folder, keep, report=lines.append)
    for value in values:
        made.write(HEADER, {"x": np.full((2, 3), value)}, {"step": value})
    made.wait()
    return made, lines


def value_in(folder):
    """The value in the newest whole checkpoint, and the lines that tell of it."""
    lines = []
    newest = CheckpointFolder(folder, report=lines.append).read(HEADER)
    if newest is None:
        return None, lines
    arrays, facts, same_replicas = newest
    assert same_replicas
    onp.testing.assert_array_equal(arrays["x"], onp.full((2, 3), facts["step"], "float32"))
    return facts["step"], lines


@pytest.mark.parametrize("kind", [CheckpointFolder, Checkpoint])
def test_only_the_last_are_kept(kind, tmp_path):
    made = kind(tmp_path)
    for value in range(1, 6):
        made.write(HEADER, {"x": np.full((2, 3), value)}, {"step": value})
    made.wait()
    assert names(tmp_path) == numbered(3, 4, 5)
    del made
    saved(tmp_path, 6, 7, keep=1)
    assert names(tmp_path) == numbered(7)
    assert value_in(tmp_path) == (7, [f"continuing from {tmp_path / numbered(7)[0]}"])


def test_a_write_does_not_wait_and_keeps_what_was_there(tmp_path):
    """The array is not computed yet, and is written again before it is."""
    x, folder = np.zeros((2, 3)), CheckpointFolder(tmp_path)
    npx.waitall()
    gate = Gate(x)
    x += 5
    folder.write(HEADER, {"x": x}, {"step": 5})
    x += 1
    assert names(tmp_path) == []
    gate.open()
    folder.wait()
    assert value_in(tmp_path)[0] == 5
    assert float(x[0, 0]) == 6


@pytest.mark.parametrize("device", [0, 1])
def test_arrays_of_all_kinds_come_back(device, tmp_path):
    cpu = mx.cpu(device)
    arrays = {
        "scalar": np.array(3.5, ctx=cpu),
        "none": np.zeros((0, 3), ctx=cpu),
        "half": np.ones((2,), dtype="float16", ctx=cpu),
        "whole": np.array([2**40], dtype="int64", ctx=cpu),
        "file": mx.nd.ones((2, 2), ctx=cpu),
        "bytes": onp.frombuffer(b"abc", "uint8"),
    }
    folder = CheckpointFolder(tmp_path)
    folder.write(HEADER, {f"a/{name}": x for name, x in arrays.items()}, {"lr": onp.float32(0.5), "loss": float("nan")})
    kept, facts, _ = folder.read(HEADER)
    for name, x in arrays.items():
        host = x if name == "bytes" else x.asnumpy()
        assert kept[f"a/{name}"].dtype == host.dtype
        onp.testing.assert_array_equal(kept[f"a/{name}"], host)
    assert facts["lr"] == 0.5
    assert facts["loss"] != facts["loss"]
    with onp.load(str(tmp_path / numbered(1)[0]), allow_pickle=False) as plain:
        assert plain["a/scalar"] == 3.5


ALONE = """
import os, sys, time
from mxdp.backend import np
from mxdp.processes import CheckpointFolder
folder, header = sys.argv[1], {"training": {"seed": 0}, "replicas": "1 device"}
"""


def test_a_process_killed_while_it_writes_leaves_the_one_before(tmp_path):
    """With kill -9, after half of the file was written. A child that it has forked lives on, without the lock."""
    saved(tmp_path, 1, 2)
    script = """
import signal

def fsync(file):
    os.ftruncate(file, os.fstat(file).st_size // 2)
    os.kill(os.getpid(), signal.SIGKILL)

made = CheckpointFolder(folder)
made.lock()
at, to = os.pipe()
child = os.fork()
if not child:
    print(made._take(), flush=True)
    os.close(1)
    os.write(to, b".")
    time.sleep(120)
    os._exit(0)
os.read(at, 1)
print(child, flush=True)
os.fsync = fsync
made.write(header, {"x": np.full((2, 3), 3)}, {"step": 3})
made.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", ALONE + script, tmp_path], timeout=100, stdout=subprocess.PIPE, text=True
    )
    refused, child = done.stdout.splitlines()
    try:
        assert done.returncode == -9
        assert refused.startswith("another training writes checkpoints in "), "a forked process has no lock"
        *before, part = names(tmp_path)
        assert before == numbered(1, 2)
        assert part.startswith(f"{numbered(3)[0]}.{os.uname().nodename}-")
        assert part.endswith(".part")
        assert value_in(tmp_path)[0] == 2
        assert names(tmp_path) == [*before, part], "a reader removes nothing"
        saved(tmp_path, 4)
        assert names(tmp_path) == numbered(1, 2, 3)
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_a_second_writer_is_told_and_destroys_nothing(tmp_path):
    """While another process is in the midst of the second file."""
    script = """
made = CheckpointFolder(folder)
made.write(header, {"x": np.full((2, 3), 1)}, {"step": 1})
made.wait()
flush, held = os.fsync, []

def fsync(file):
    if not held:
        held.append(file)
        print("held", flush=True)
        sys.stdin.readline()
        time.sleep(0.5)
    flush(file)

os.fsync = fsync
made.write(header, {"x": np.full((2, 3), 2)}, {"step": 2})
# and the program ends without a wait
"""
    (tmp_path / checkpoint_file.LOCK).write_text("an older holder with a long name " * 9)
    other = subprocess.Popen(
        [sys.executable, "-c", ALONE + script, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "held\n"
        there = names(tmp_path)
        assert len(there) == 2
        assert there[1].endswith(f"-{other.pid}.part")
        assert value_in(tmp_path)[0] == 1
        sentence = (
            rf"^another training writes checkpoints in {tmp_path} \(process {other.pid} on {os.uname().nodename}\): "
            "use another folder, or wait until it has ended"
        )
        for second in (CheckpointFolder(tmp_path), Checkpoint(tmp_path)):
            with pytest.raises(MxdpError, match=sentence):
                second.lock()
            with pytest.raises(MxdpError, match=sentence):
                second.write(HEADER, {"x": np.zeros((2, 3))}, {"step": 9})
        assert names(tmp_path) == there
        other.communicate("go on\n", timeout=60)
        assert other.returncode == 0
        assert names(tmp_path) == numbered(1, 2)
        assert value_in(tmp_path)[0] == 2
        assert second.lock() is None, "now it may"
    finally:
        other.kill()
        other.communicate()


def free(folder):
    """Could another process write there?"""
    script = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return not subprocess.run(
        [sys.executable, "-c", script, folder / checkpoint_file.LOCK], capture_output=True
    ).returncode


def test_objects_of_a_process_share_the_lock_until_the_last_is_gone(tmp_path):
    first, _ = saved(tmp_path, 1)
    second, _ = saved(tmp_path, 2)
    first.write(HEADER, {"x": np.full((2, 3), 3)}, {"step": 3})
    second.write(HEADER, {"x": np.full((2, 3), 4)}, {"step": 4})
    first.wait()
    second.wait()
    assert names(tmp_path) == numbered(2, 3, 4), "none took another's number"
    del first
    assert not free(tmp_path)
    del second
    assert free(tmp_path)
    saved(tmp_path, 5)
    assert free(tmp_path)


def test_a_folder_that_cannot_be_locked_is_used_with_a_line(tmp_path, monkeypatch):
    """Some network file systems have no locks. A process without one removes nothing of others."""
    part = tmp_path / f"{numbered(1)[0]}.elsewhere-1.part"
    part.write_text("another's")

    def unknown(*args):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(checkpoint_file.fcntl, "lockf", unknown)
    _, lines = saved(tmp_path, 1, 2)
    assert lines == [
        f"{tmp_path} can't be locked ([Errno 37] No locks available): see that no other training writes checkpoints "
        "there"
    ]
    assert names(tmp_path) == sorted([part.name, *numbered(1, 2)])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_all_ranks_read_what_rank_0_has_and_only_rank_0_has_the_folder(n, tmp_path, monkeypatch):
    arrays = {f"{number}": onp.full((2, number), number) for number in range(5)}

    def train(world, header=HEADER):
        made = CheckpointFolder(tmp_path / f"{world.rank}", world=world, report=lambda line: None)
        made.lock()
        kept = made.read(header)
        made.write(HEADER, arrays, {"epoch": 4})
        made.wait()
        return kept

    assert fake_mpi.run(n, train) == [None] * n
    for kept, facts, same in fake_mpi.run(n, train):
        assert {name: x.tolist() for name, x in kept.items()} == {name: x.tolist() for name, x in arrays.items()}
        assert (facts, same) == ({"epoch": 4}, True)
    assert names(tmp_path) == ["0"]
    other = {"training": {"seed": 1}, "replicas": "1 device"}
    refused, _ = fake_mpi.outcomes(n, lambda world: train(world, other))
    assert [type(error) for error in refused] == [MxdpError] * n
    asked = []

    def take(self):
        asked.append(self._world.rank)
        return f"not on rank {asked[-1]}"

    monkeypatch.setattr(CheckpointFolder, "_take", take)
    assert [str(error) for error in fake_mpi.outcomes(n, train)[0]] == ["not on rank 0"] * n
    assert asked == [0]


def truncated(path):
    path.write_bytes(path.read_bytes()[:-100])


def empty(path):
    path.write_bytes(b"")


class RunsCode:
    def __reduce__(self):
        return print, ("code of the file runs",)


def npy(array):
    file = io.BytesIO()
    onp.save(file, array)
    return file.getvalue()


WHOLE = json.dumps({**HEADER, "facts": {}})


def crafted(facts=WHOLE, compression=zipfile.ZIP_STORED, says=0, **members):
    """Damage that has the right checksum: a file that somebody made, or another version. ``says``: the length of its
    last member, as the file claims it."""

    def damage(path):
        with zipfile.ZipFile(path, "w", compression) as made:
            for name, content in {"facts": npy(facts), **members}.items():
                made.writestr(f"{name}.npy", content)
            made.filelist[-1].file_size = says or made.filelist[-1].file_size
        sealed(path)

    return damage


HUGE = npy(onp.ones(8)).replace(b"(8,), }" + b" " * 12, b"(8%s,), }" % (b"0" * 12))
CRAFTED = {
    "code": crafted(npy(onp.array([RunsCode()], dtype=object))),
    "code in an array": crafted(x=npy(onp.array([RunsCode()], dtype=object))),
    "code in a header": crafted(x=npy(onp.ones(8)).replace(b"(8,), }      ", b"print(1), }  ")),
    "nested JSON": crafted("[" * 200_000),
    "no JSON": crafted("print('code')"),
    "a list": crafted("[]"),
    "a list for the training": crafted(json.dumps({**HEADER, "training": [], "facts": {}})),
    "a list for the facts": crafted(json.dumps({**HEADER, "facts": []})),
    "no facts": crafted(json.dumps(HEADER)),
    "compressed": crafted(compression=zipfile.ZIP_DEFLATED, x=npy(onp.zeros(10_000_000))),
    "huge": crafted(x=HUGE),
    "huge, and it says so": crafted(x=HUGE, says=8 * 8 * 10**12 + 1000),
    "no array": crafted(x=b"x" * 100),
}


DAMAGED = {
    "truncated": truncated,
    "empty": empty,
    "foreign": lambda path: onp.savez(path, x=onp.ones(3)),
    "text": lambda path: path.write_text("not a checkpoint\n" * 20),
    "folder": lambda path: path.unlink() or path.mkdir(),
    **CRAFTED,
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_or_foreign_file_is_named_and_the_one_before_it_taken(what, tmp_path, capfd):
    """And nothing of it is run, nor more memory taken than it has bytes."""
    saved(tmp_path, 1, 2, 3)
    newest = tmp_path / numbered(3)[0]
    DAMAGED[what](newest)
    value, lines = value_in(tmp_path)
    why = "" if what in (*CRAFTED, "folder") else "damaged, or no checkpoint of mxdp: its checksum is"
    assert lines[0].startswith(f"{newest} is not used ({why}")
    assert "\n" not in lines[0]
    assert lines[0].endswith(f"): {numbered(2)[0]}, the one before it, is taken")
    assert value == 2
    assert lines[1:] == [f"continuing from {tmp_path / numbered(2)[0]}"]
    assert capfd.readouterr() == ("", "")


def test_every_flipped_byte_is_noticed(tmp_path):
    saved(tmp_path, 1)
    path = tmp_path / numbered(1)[0]
    whole = path.read_bytes()
    for place in range(len(whole)):
        with pytest.raises(ValueError, match="checksum is wrong"):
            checkpoint_file.check_whole(io.BytesIO(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]))
    for length in range(len(whole)):
        with pytest.raises(ValueError, match="checksum is wrong"):
            checkpoint_file.check_whole(io.BytesIO(whole[:length]))
    checkpoint_file.check_whole(io.BytesIO(whole))
    assert checkpoint_file.read_checkpoint(path)[1]["facts"] == {"step": 1}


def test_refused_files_stay_and_do_not_count(tmp_path):
    made, _ = saved(tmp_path, 1, 2, 3, keep=2)
    empty(tmp_path / numbered(3)[0])
    made.read(HEADER)
    for value in (4, 5):
        made.write(HEADER, {"x": np.full((2, 3), value)}, {"step": value})
    made.wait()
    assert names(tmp_path) == numbered(3, 4, 5)


def test_a_folder_without_a_whole_checkpoint_starts_anew(tmp_path):
    assert value_in(tmp_path / "new" / "one") == (None, [])
    saved(tmp_path, 1)
    empty(tmp_path / numbered(1)[0])
    (tmp_path / "notes.npz").write_text("mine")
    value, lines = value_in(tmp_path)
    assert value is None
    assert lines[0].endswith(": there is none before it")
    assert len(lines) == 1


@pytest.fixture
def room(tmp_path, monkeypatch):
    """Limits what ``tmp_path`` may hold, in bytes."""
    limit = [1 << 40]

    def used():
        return sum(path.stat().st_size for path in tmp_path.iterdir())

    class Limited(io.FileIO):
        def write(self, some):
            if used() + len(some) > limit[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(some)

    def limited(path, mode):
        return Limited(path, "w+") if "w" in mode else open(path, mode)

    monkeypatch.setattr(checkpoint_file, "open", limited, raising=False)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: usage._replace(free=max(0, limit[0] - used())))
    return limit


@pytest.mark.parametrize("checkpoints", [1, 2, 3, 4])
def test_a_full_disk_gives_up_the_oldest(checkpoints, tmp_path, room):
    """With room for fewer than ``keep`` and the one being written."""
    saved(tmp_path / "size", 0)
    size = (tmp_path / "size" / numbered(1)[0]).stat().st_size
    shutil.rmtree(tmp_path / "size")
    room[0] = int((checkpoints + 0.7) * size)
    for values in (range(1, 6), range(6, 9)):  # started again, too
        _, lines = saved(tmp_path, *values)
        if checkpoints == 1:
            assert names(tmp_path) == numbered(1), "the only whole one stays"
            failed = len(values) - (values[0] == 1)
            assert [line.split("(")[0] for line in lines[:-1]] == ["a checkpoint could not be written "] * failed
            assert lines[-1] == f"nothing is saved from there on: {numbered(1)[0]} is the newest checkpoint"
        else:
            last = values[-1]
            assert names(tmp_path) == numbered(*range(last - min(checkpoints, 3) + 1, last + 1))
            assert len(lines) == (checkpoints < 4)
            assert all(line.startswith("the disk is full: checkpoint-00000") for line in lines)
    assert value_in(tmp_path)[0] == (1 if checkpoints == 1 else 8)


@pytest.mark.parametrize(("more", "left"), [(0.9, (3, 4)), (2.6, (1, 2, 3))])
def test_a_larger_checkpoint_takes_the_place_of_two_or_of_none(more, left, tmp_path, room):
    """The older two and what is free make room for 2.5 of them; for more, none is given up in vain."""
    made, lines = saved(tmp_path, 1, 2, 3)
    size = (tmp_path / numbered(1)[0]).stat().st_size
    room[0] = int(3.5 * size)
    made.write(HEADER, {"x": onp.zeros((2, 3), "float32"), "y": onp.zeros(int(more * size), "uint8")}, {"step": 0})
    made.wait()
    assert names(tmp_path) == numbered(*left)
    assert lines[0].startswith(
        f"the disk is full: {numbered(1)[0]}," if more < 1 else "a checkpoint could not be written"
    )


@pytest.mark.parametrize(("damaged", "whole", "newest"), [([3], 2, 4), ([2, 3], 1, 1)])
def test_a_full_disk_never_costs_the_newest_whole_checkpoint(damaged, whole, newest, tmp_path, room):
    """Also if the newer ones are damaged and were never read."""
    saved(tmp_path, 1, 2, 3)
    for name in numbered(*damaged):
        truncated(tmp_path / name)
    room[0] = sum(path.stat().st_size for path in tmp_path.iterdir()) + 300
    saved(tmp_path, 4)
    assert value_in(tmp_path)[0] == newest
    assert (tmp_path / numbered(whole)[0]).exists()


def test_a_disk_with_room_again_is_used_again(tmp_path, room):
    made, lines = saved(tmp_path, 1, keep=1)
    for limit, values in ((0, (2, 3)), (1 << 40, (4,)), (0, (5, 6))):
        for value in values:
            made.wait()
            room[0] = limit
            made.write(HEADER, {"x": np.full((2, 3), value)}, {"epoch": value, "step": value})
    made.wait()
    assert value_in(tmp_path)[0] == 4
    assert lines[-1] == f"nothing is saved from epoch 6 on: {numbered(2)[0]} is the newest checkpoint"
    assert names(tmp_path) == numbered(2)


def test_a_folder_that_is_gone_does_not_end_the_training(tmp_path):
    made, lines = saved(tmp_path / "gone", 1)
    shutil.rmtree(tmp_path / "gone")
    made.write(HEADER, {"x": np.zeros((2, 3))}, {"step": 2})
    made.wait()
    assert "there is none before it, and the training goes on" in lines[0]


def test_an_error_of_the_thread_is_raised_by_the_next_call(tmp_path, monkeypatch):
    """And nothing is left of the file."""
    made, _ = saved(tmp_path, 1)

    def wrong(*args):
        raise BackendError("of the thread")

    monkeypatch.setattr(os, "fsync", wrong)
    made.write(HEADER, {"x": np.zeros((2, 3))}, {"step": 2})
    with pytest.raises(BackendError, match="of the thread"):
        made.wait()
    made.wait()
    assert names(tmp_path) == numbered(1)


@pytest.mark.parametrize("kind", [CheckpointFolder, Checkpoint])
@pytest.mark.parametrize("keep", [0, -1, True, 2.0, "3"])
def test_keep_is_a_positive_whole_number(kind, keep, tmp_path):
    with pytest.raises(ValueError, match="keep"):
        kind(tmp_path, keep)


def test_numbers_have_more_digits_after_a_million(tmp_path):
    """Text would sort 1000000 before 999999."""
    saved(tmp_path, 1)
    (tmp_path / numbered(1)[0]).rename(tmp_path / numbered(999_997)[0])
    (tmp_path / "checkpoint-12345.npz").write_text("not one of ours")
    for value in range(2, 7):
        saved(tmp_path, value)
        assert value_in(tmp_path)[0] == value
    assert names(tmp_path) == sorted([*numbered(1_000_000, 1_000_001, 1_000_002), "checkpoint-12345.npz"])


def test_what_only_one_side_says_of_the_training_is_compared(tmp_path):
    header = {"training": {"seed": 0, "dropout": 0.5}, "replicas": "1 device"}
    made = CheckpointFolder(tmp_path)
    made.write(header, {}, {})
    made.wait()
    for call in (CheckpointFolder(tmp_path).read, lambda here: CheckpointFolder(tmp_path).write(here, {}, {})):
        with pytest.raises(MxdpError, match=r"dropout is 0\.5 there and None here"):
            call(HEADER)


def test_each_file_is_on_the_disk_before_its_name_and_its_name_before_the_next(tmp_path, monkeypatch):
    """The file, then its new name, then the folder, whose entry the name is: else a power cut may take it."""
    done, fsync, replace = [], os.fsync, os.replace

    def flushed(file):
        done.append((os.readlink(f"/proc/self/fd/{file}"), os.fstat(file).st_size))
        fsync(file)

    def renamed(old, new):
        done.append((str(old), str(new)))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    saved(tmp_path, 1, 2, 3)
    assert len(done) == 9
    for number in range(3):
        (file, size), (old, new), (folder, _) = done[3 * number : 3 * number + 3]
        path = tmp_path / numbered(number + 1)[0]
        assert (file, new, folder) == (old, str(path), str(tmp_path))
        assert size == path.stat().st_size, "all of it was flushed"


def test_wait_waits_as_long_as_the_disk_takes(tmp_path, monkeypatch):
    """And the second write waits for the first. A limit of some seconds would be some milliseconds here."""
    fsync, join, busy = os.fsync, threading.Thread.join, []

    def slow(file):
        busy.append(1)
        assert len(busy) == 1, "two at once"
        time.sleep(0.3)
        fsync(file)
        busy.pop()

    def impatient(self, timeout=None):
        join(self, None if timeout is None else timeout / 1000)

    monkeypatch.setattr(os, "fsync", slow)
    monkeypatch.setattr(threading.Thread, "join", impatient)
    made = CheckpointFolder(tmp_path)
    for value in (1, 2):
        made.write(HEADER, {"x": np.full((2, 3), value)}, {"step": value})
    made.wait()
    assert names(tmp_path) == numbered(1, 2)
    made.wait()


def test_a_reader_beside_a_quick_writer_takes_the_newest(tmp_path, monkeypatch):
    """The files that it has listed are removed before it opens them."""
    saved(tmp_path, 1, 2)
    original, done = CheckpointFolder._files, []

    def then_newer_ones(self):
        files = original(self)
        if not done:
            done.append(1)
            saved(tmp_path, 3, 4, 5, 6)
        return files

    monkeypatch.setattr(CheckpointFolder, "_files", then_newer_ones)
    assert value_in(tmp_path) == (6, [f"continuing from {tmp_path / numbered(6)[0]}"])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_checkpoint_takes_the_memory_of_one_copy_and_reading_it_that_of_its_arrays(tmp_path):
    def write(x):
        made.write(HEADER, {"x": x}, {"step": 1})
        made.wait()

    made = CheckpointFolder(tmp_path, report=lambda line: None)
    write(onp.broadcast_to(onp.float32(0), 24 << 20))  # which takes no memory itself
    read = grown(lambda: made.read(HEADER)) / 2**20  # which first gives back what earlier tests have freed
    x = np.ones((24 << 20,))
    written = grown(lambda: write(x)) / 2**20
    print(f"96 MB written +{written:.0f} MB, and read +{read:.0f} MB")
    assert 0.5 * 96 < written < 1.6 * 96
    assert 0.5 * 96 < read < 1.25 * 96

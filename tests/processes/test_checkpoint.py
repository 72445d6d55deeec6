"""The files of checkpoints: whatever happens to the disk or the process, a whole one is left."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as onp
import pytest
from kept import names, numbered

from mxdp.backend import mx, np, npx
from mxdp.engine import Gate
from mxdp.errors import BackendError
from mxdp.processes import CheckpointFolder, checkpoint

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
    found = CheckpointFolder(folder, report=lines.append).read(HEADER)
    if found is None:
        return None, lines
    arrays, facts, same_replicas = found
    assert same_replicas
    onp.testing.assert_array_equal(arrays["x"], onp.full((2, 3), facts["step"], "float32"))
    return facts["step"], lines


def test_only_the_last_are_kept(tmp_path):
    saved(tmp_path, 1, 2, 3, 4, 5)
    assert names(tmp_path) == numbered(3, 4, 5)
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
    found, facts, _ = folder.read(HEADER)
    for name, x in arrays.items():
        host = x if name == "bytes" else x.asnumpy()
        assert found[f"a/{name}"].dtype == host.dtype
        onp.testing.assert_array_equal(found[f"a/{name}"], host)
    assert facts["lr"] == 0.5
    assert facts["loss"] != facts["loss"]
    with onp.load(str(tmp_path / numbered(1)[0]), allow_pickle=False) as plain:
        assert plain["a/scalar"] == 3.5


def test_a_process_killed_while_it_writes_leaves_the_one_before(tmp_path):
    """With kill -9, after half of the file was written."""
    saved(tmp_path, 1, 2)
    script = f"""
import os, signal
from mxdp.backend import np
from mxdp.processes import CheckpointFolder

def fsync(file):
    os.ftruncate(file, os.fstat(file).st_size // 2)
    os.kill(os.getpid(), signal.SIGKILL)

os.fsync = fsync
folder = CheckpointFolder({str(tmp_path)!r})
folder.write({HEADER!r}, {{"x": np.full((2, 3), 3)}}, {{"step": 3}})
folder.wait()
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=100)
    assert done.returncode == -9
    assert names(tmp_path) == [*numbered(1, 2), f"{numbered(3)[0]}.part"]
    assert value_in(tmp_path)[0] == 2
    assert names(tmp_path) == numbered(1, 2)


def truncated(path):
    path.write_bytes(path.read_bytes()[:-100])


def empty(path):
    path.write_bytes(b"")


def foreign(path):
    onp.savez(path, x=onp.ones(3))


def text(path):
    path.write_text("not a checkpoint\n" * 20)


def pickled(path):
    onp.savez(path, x=onp.array([{}], dtype=object))


def folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [truncated, empty, foreign, text, pickled, folder])
def test_a_damaged_or_foreign_file_is_named_and_the_one_before_it_taken(damage, tmp_path):
    saved(tmp_path, 1, 2, 3)
    newest = tmp_path / numbered(3)[0]
    damage(newest)
    value, lines = value_in(tmp_path)
    why = "[Errno 21] Is a directory: " if damage is folder else "damaged, or no checkpoint of mxdp: its checksum is"
    assert lines[0].startswith(f"{newest} is not used ({why}")
    assert lines[0].endswith(f"): {numbered(2)[0]}, the one before it, is taken")
    assert value == 2
    assert lines[1:] == [f"continuing from {tmp_path / numbered(2)[0]}"]


def test_every_flipped_byte_is_noticed(tmp_path):
    saved(tmp_path, 1)
    path = tmp_path / numbered(1)[0]
    whole = path.read_bytes()
    for place in range(len(whole)):
        with pytest.raises(ValueError, match="checksum is wrong"):
            checkpoint._decoded(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    assert checkpoint._decoded(whole)[1]["facts"] == {"step": 1}


def test_refused_files_stay_and_do_not_count(tmp_path):
    saved(tmp_path, 1, 2, 3)
    empty(tmp_path / numbered(3)[0])
    lines = []
    made = CheckpointFolder(tmp_path, keep=2, report=lines.append)
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


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0 or sys.platform != "linux", reason="needs root to mount")
def test_a_disk_that_is_really_full(tmp_path):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr}")
    try:
        made, lines = saved(tmp_path, 1, 2)
        made.write(HEADER, {"x": np.zeros((100, 1000))}, {"step": 3})
        made.wait()
        assert len(lines) == 1
        assert lines[0].startswith("a checkpoint could not be written ([Errno 28] No space left on device")
        assert names(tmp_path) == numbered(1, 2)
        assert value_in(tmp_path)[0] == 2
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_folder_that_is_gone_does_not_end_the_training(tmp_path):
    made, lines = saved(tmp_path / "gone", 1)
    (tmp_path / "gone" / numbered(1)[0]).unlink()
    (tmp_path / "gone").rmdir()
    made.write(HEADER, {"x": np.zeros((2, 3))}, {"step": 2})
    made.wait()
    assert "there is none before it, and the training goes on" in lines[0]


def test_an_error_of_the_thread_is_raised_by_the_next_call(tmp_path, monkeypatch):
    made, _ = saved(tmp_path, 1)

    def wrong(*args):
        raise BackendError("of the thread")

    monkeypatch.setattr(checkpoint, "_encoded", wrong)
    made.write(HEADER, {"x": np.zeros((2, 3))}, {"step": 2})
    with pytest.raises(BackendError, match="of the thread"):
        made.wait()
    made.wait()
    assert names(tmp_path) == numbered(1)

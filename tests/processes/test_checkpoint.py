"""Folders of checkpoints: whatever happens to the disk or the process, a whole one is left."""

import copy
import errno
import io
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from unittest import mock

import fake_mpi
import numpy as onp
import pytest
from gate import Gate
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from test_checkpoint_file import DAMAGED, HEADER, names, numbered

from mxdp.backend import np, npx
from mxdp.errors import BackendError, MxdpError
from mxdp.experiments.memory_use import grown
from mxdp.gluon import Checkpoint
from mxdp.processes import CheckpointFolder, checkpoint, checkpoint_file
from mxdp.processes.checkpoint_file import LOCK

OTHER = {"training": {"seed": 0, "dropout": 0.5}, "replicas": "1 device"}


def write(made, value, **facts):
    made.write(HEADER, {"x": np.full((2, 3), value)}, {"step": value, **facts})


def saved(folder, *values, keep=3):
    """A folder with a checkpoint for each value, and its lines."""
    lines = []
    made = CheckpointFolder(folder, keep, report=lines.append)
    for value in values:
        write(made, value)
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


@settings(max_examples=40, phases=[Phase.generate])  # shrinking waits for the disk
@given(data=st.data(), first=st.sampled_from([1, 999_996]))
def test_the_newest_whole_one_is_read_and_the_last_are_kept(data, first, tmp_path_factory):
    """Whoever writes them, by whichever name of the folder. (As text, 1000000 would stand before 999999.)"""
    folder = tmp_path_factory.mktemp("kept")
    link = folder.with_name(f"{folder.name}-link")
    link.symlink_to(folder)
    saved(folder, 1)
    (folder / numbered(1)[0]).rename(folder / numbered(first)[0])
    others = ["checkpoint-12345.npz", "notes.npz"]
    for name in others:
        (folder / name).write_text("not one of ours")
    values, whole, value = {first: 1}, {first: 1}, 1
    for _ in range(data.draw(st.integers(1, 3))):
        for number in sorted(values)[len(values) - data.draw(st.integers(0, 2)) :]:
            if whole.pop(number, None):
                DAMAGED[data.draw(st.sampled_from(["truncated", "empty"]))](folder / numbered(number)[0])
        refused = [number for number in sorted(values) if number > max(whole, default=0)]
        lines, kind = [], data.draw(st.sampled_from([CheckpointFolder, Checkpoint]))
        keep = data.draw(st.integers(1, 3))
        made = kind(data.draw(st.sampled_from([folder, link])), keep, report=lines.append)
        ends = [
            "there is none before it",
            *(f"{name}, the one before it, is taken" for name in numbered(*sorted(values))),
        ]
        files = [(str(made.folder / numbered(number)[0]), number in refused) for number in sorted(values)]
        told = [(f"{file} is not used (", f"): {end}") for (file, bad), end in zip(files, ends) if bad][::-1]
        for what in data.draw(st.lists(st.sampled_from(["write", "write", "read"]), min_size=1, max_size=6)):
            if what == "write":
                value += 1
                write(made, value)
                made.wait()
                number = max(values, default=0) + 1
                values[number] = whole[number] = value
                for old in [number for number in sorted(values) if number not in refused][:-keep]:
                    del values[old]
                    whole.pop(old, None)
            else:
                newest = made.read(HEADER)
                if newest:
                    told.append((f"continuing from {made.folder / numbered(max(whole))[0]}", ""))
                    assert (newest[0]["x"].tolist(), newest[2]) == ([[newest[1]["step"]] * 3] * 2, True)
                assert (newest and newest[1]["step"]) == whole.get(max(whole, default=None))
            assert names(folder) == sorted([*numbered(*values), *others])
        assert [(line[: len(start)], line[len(line) - len(end) :]) for line, (start, end) in zip(lines, told)] == told
        assert len(lines) == len(told)


def test_a_write_does_not_wait_and_keeps_what_was_there(tmp_path):
    """The array is not computed yet, and is written again before it is. All that was given may be changed."""
    x, folder = np.zeros((2, 3)), CheckpointFolder(tmp_path)
    npx.waitall()
    gate = Gate(x)
    x += 5
    arrays, facts, header = {"x": x}, {"step": 5}, copy.deepcopy(HEADER)
    folder.write(header, arrays, facts)
    x += 1
    arrays["x"] = facts["step"] = header["training"]["seed"] = 7
    assert names(tmp_path) == []
    gate.open()
    folder.wait()
    assert value_in(tmp_path)[0] == 5
    assert float(x[0, 0]) == 6


OTHERS = """
import os, sys
import numpy as onp
from mxdp.processes import CheckpointFolder

def write(value):
    made.write({"training": {"seed": 0}, "replicas": "1 device"}, {"x": onp.full((2, 3), value)}, {"step": value})

made = CheckpointFolder(sys.argv[1])
write(1)
made.wait()
if not os.fork():
    print(made._take(), flush=True)
    os._exit(0)
os.wait()
print("held", flush=True)
sys.stdin.readline()
write(2)  # and the program ends without a wait
"""


def test_a_second_writer_is_told_and_what_is_half_written_goes_with_its_writer(tmp_path):
    """While another process is in the midst of a file, and after its end. A process that it has forked has no lock."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    (real / LOCK).write_text("an older holder with a long name " * 9)
    other = subprocess.Popen(
        [sys.executable, "-c", OTHERS, real], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    told = rf"\(process {other.pid} on {os.uname().nodename}\): use another folder, or wait until it has ended"
    part = real / f"{numbered(9)[0]}.{os.uname().nodename}-{other.pid}.part"
    try:
        assert other.stdout.readline().startswith("another training writes checkpoints in ")
        assert other.stdout.readline() == "held\n"
        part.touch()
        for second in (CheckpointFolder(real), Checkpoint(link)):
            assert value_in(second.folder)[0] == 1
            for call in (second.lock, lambda: write(second, 9)):  # noqa: B023
                with pytest.raises(MxdpError, match=f"^another training writes checkpoints in {second.folder} {told}"):
                    call()
        other.communicate("go on\n", timeout=60)
    finally:
        other.kill()
        other.communicate()
    assert (other.returncode, value_in(real)[0]) == (0, 2)
    assert names(real) == [*numbered(1, 2), part.name], "a reader removes nothing"
    assert second.lock() is None, "now it may"
    assert names(real) == numbered(1, 2)


def free(folder):
    """Could another process write there?"""
    script = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return not subprocess.run([sys.executable, "-S", "-c", script, folder / LOCK], capture_output=True).returncode


@pytest.mark.parametrize("other", ["same", "link", "moved"])
def test_objects_of_a_process_share_the_lock_until_the_last_is_gone(other, tmp_path):
    """Also where the folder has another name for one of them."""
    folder, second_folder = tmp_path / "same", tmp_path / other
    first, _ = saved(folder, 1)
    if other == "link":
        second_folder.symlink_to(folder)
    elif other == "moved":
        folder.rename(second_folder)
        first.folder = second_folder
    part = second_folder / f"{numbered(9)[0]}.{os.uname().nodename}-{os.getpid()}.part"
    part.touch()  # as if the first were writing it
    second, _ = saved(second_folder, 2)
    part.unlink()
    write(first, 3)
    write(second, 4)
    first.wait()
    second.wait()
    assert names(second_folder) == numbered(2, 3, 4), "none took another's number"
    del first
    assert not free(second_folder)
    del second
    assert free(second_folder)
    saved(second_folder, 5)
    assert free(second_folder)


def test_a_folder_that_is_made_anew_has_a_lock_of_its_own(tmp_path):
    first, lines = saved(tmp_path / "a" / "b", 1)
    shutil.rmtree(tmp_path / "a" / "b")
    write(first, 2)
    first.wait()
    assert "there is none before it, and the training goes on" in lines[0], "it does not end the training"
    (tmp_path / "a" / "b").mkdir()
    (tmp_path / "a" / "b" / LOCK).touch()  # another process was here
    second, _ = saved(tmp_path / "a" / "b", 3)
    assert not free(second.folder)


def test_a_folder_that_cannot_be_locked_is_used_with_a_line(tmp_path, monkeypatch):
    """Some network file systems have no locks. A process without one removes nothing of others."""
    part = tmp_path / f"{numbered(1)[0]}.elsewhere-1.part"
    part.write_text("another's")
    unknown = mock.Mock(side_effect=OSError(errno.ENOLCK, "No locks available"))
    monkeypatch.setattr(checkpoint_file.fcntl, "lockf", unknown)
    _, lines = saved(tmp_path, 1, 2)
    (line,) = lines
    assert line.startswith(f"{tmp_path} can't be locked ([Errno 37] No locks available): ")
    assert names(tmp_path) == sorted([part.name, *numbered(1, 2)])


@pytest.mark.parametrize("n", [1, 3])
def test_all_ranks_read_what_rank_0_has_and_only_rank_0_has_the_folder(n, tmp_path):
    arrays = {f"{number}": onp.full((2, number), number) for number in range(11)}

    def train(world, header=HEADER):
        made = CheckpointFolder(tmp_path / f"{world.rank}", world=world, report=lambda line: None)
        made.lock(header, arrays)
        kept = made.read(HEADER)
        made.write(HEADER, arrays, {"epoch": 4})
        made.wait()
        return kept

    assert fake_mpi.run(n, train) == [None] * n
    for kept, facts, same in fake_mpi.run(n, train):
        assert {name: x.tolist() for name, x in kept.items()} == {name: x.tolist() for name, x in arrays.items()}
        assert (facts, same) == ({"epoch": 4}, True)
    assert names(tmp_path) == ["0"]
    refused, _ = fake_mpi.outcomes(n, lambda world: train(world, OTHER))
    assert [type(error) for error in refused] == [MxdpError] * n


def used(folder):
    return sum(path.stat().st_size for path in folder.iterdir())


@contextmanager
def room(folder):
    """Limits what ``folder`` may hold, in bytes."""
    limit = [1 << 40]

    class Limited(io.FileIO):
        def write(self, some):
            if used(folder) + len(some) > limit[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(some)

    def limited(path, mode):
        return Limited(path, "w+") if "w" in mode else open(path, mode)

    usage = shutil.disk_usage(folder)
    with mock.patch.object(checkpoint_file, "open", limited, create=True), mock.patch.object(
        checkpoint.shutil, "disk_usage", side_effect=lambda path: usage._replace(free=max(0, limit[0] - used(folder)))
    ):
        yield limit


@settings(max_examples=30, phases=[Phase.generate])  # shrinking waits for the disk
@given(data=st.data(), keep=st.integers(1, 3), whole=st.integers(0, 3), bad=st.integers(0, 2))
def test_a_full_disk_costs_the_oldest_alone_and_none_in_vain(data, keep, whole, bad, tmp_path_factory):
    """The newest whole one stays until a newer one is whole, also if those after it were damaged meanwhile.
    None goes where all of the older ones would not make room for the arrays."""
    folder, probe = tmp_path_factory.mktemp("kept"), tmp_path_factory.mktemp("probe") / "file"
    saved(folder, *range(1, whole + bad + 1), keep=5)
    files, refused, gone, lines = numbered(*range(1, whole + bad + 1)), [], [], []
    steps = dict(zip(files, range(1, whole + 1)))
    made = CheckpointFolder(folder, keep, report=lines.append)
    made.lock(HEADER)
    for name in files[whole:]:
        DAMAGED["truncated"](folder / name)
    with room(folder) as limit:
        for step in range(10, 10 + data.draw(st.integers(1, 5))):
            arrays = {"x": onp.full((2, 3), step, "float32"), "y": onp.zeros(data.draw(st.integers(0, 3000)), "uint8")}
            limit[0] = 1 << 40
            checkpoint_file.write_checkpoint(probe, arrays, json.dumps({**HEADER, "facts": {"step": step}}))
            sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
            limit[0] = sum(sizes.values()) + data.draw(st.integers(0, 4000))
            made.write(HEADER, arrays, {"step": step})
            made.wait()
            needed, written = sum(array.nbytes for array in arrays.values()), probe.stat().st_size
            at_once = limit[0] - 2 - written  # the checksum's length stands in two bytes that are written twice
            number = max([0, *(int(name[11:17]) for name in (*files, *refused))]) + 1
            while sum(sizes.values()) > at_once:
                while len(files) > 1 and files[-1] not in steps:
                    refused.append(files.pop())
                free = limit[0] - sum(sizes.values())
                if len(files) < 2 or free + sum(sizes[name] for name in files[:-1]) < needed:
                    break
                gone.append(files.pop(0))
                del sizes[gone[-1]]
            if sum(sizes.values()) <= at_once:
                files = [*files, *numbered(number)][-keep:]
                steps[files[-1]] = step
            assert names(folder) == sorted([*refused, *files])
            assert value_in(folder)[0] == max([steps[name] for name in files if name in steps], default=None)
    told = [line for line in lines if line.startswith("the disk is full: ")]
    end = f", the oldest checkpoint, was removed for a new one, so fewer than {keep} may be kept"
    assert told == [f"the disk is full: {name}{end}" for name in gone[:1]]


def test_a_disk_with_room_again_is_used_again(tmp_path):
    made, lines = saved(tmp_path, 1, keep=1)
    with room(tmp_path) as allowed:
        for limit, values in ((0, (2, 3)), (1 << 40, (4,)), (0, (5, 6))):
            for value in values:
                made.wait()
                allowed[0] = limit
                write(made, value, epoch=value)
        made.wait()
    assert value_in(tmp_path)[0] == 4
    assert lines[-1] == f"nothing is saved from epoch 6 on: {numbered(2)[0]} is the newest checkpoint"
    assert names(tmp_path) == numbered(2)
    failed = [line for line in lines if line.startswith("a checkpoint could not be written ([Errno 28] No space left")]
    assert len(failed) == 4
    assert failed[0].endswith(f"): {numbered(1)[0]} stays the newest, and the training goes on")


def test_an_error_of_the_thread_is_raised_by_the_next_call_and_one_of_the_disk_is_told(tmp_path, monkeypatch):
    """And nothing is left of the file."""
    made, lines = saved(tmp_path, 1, 2)
    errors = [BackendError("of the thread"), OSError(errno.EIO, "Input/output error")]
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=errors))
    write(made, 3)
    with pytest.raises(BackendError, match="of the thread"):
        made.wait()
    write(made, 3)
    made.wait()
    assert names(tmp_path) == numbered(1, 2)
    assert [numbered(2)[0] in line for line in lines] == [True, True]


@pytest.mark.parametrize("keep", [0, -1, True, 2.0, "3"])
def test_keep_is_a_positive_whole_number(keep, tmp_path):
    for kind in (CheckpointFolder, Checkpoint):
        with pytest.raises(ValueError, match="keep"):
            kind(tmp_path, keep)


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
    def written(x):
        made.write(HEADER, {"x": x}, {"step": 1})
        made.wait()

    made, megabytes = CheckpointFolder(tmp_path, report=lambda line: None), 64
    written(onp.broadcast_to(onp.float32(0), megabytes << 18))  # which takes no memory itself
    read = grown(lambda: made.read(HEADER)) / 2**20  # which first gives back what earlier tests have freed
    x = np.ones((megabytes << 18,))
    wrote = grown(lambda: written(x)) / 2**20
    print(f"{megabytes} MB written +{wrote:.0f} MB, and read +{read:.0f} MB")
    assert 0.5 * megabytes < wrote < 1.6 * megabytes
    assert 0.5 * megabytes < read < 1.25 * megabytes

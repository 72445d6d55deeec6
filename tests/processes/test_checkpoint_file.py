"""A checkpoint's file alone: what was written comes back, and every other byte or fact is noticed."""

import hashlib
import io
import json
import os
import zipfile
from types import MappingProxyType

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.backend import mx, np
from mxdp.errors import MxdpError
from mxdp.processes.checkpoint_file import (
    LOCK,
    PIECE,
    UNREADABLE,
    check_whole,
    match,
    plain,
    read_checkpoint,
    write_checkpoint,
)

HEADER = {"training": {"seed": 0}, "replicas": "1 device"}


def names(folder):
    """All files but the lock, which stays."""
    return sorted(path.name for path in folder.iterdir() if path.name != LOCK)


def numbered(*numbers):
    return [f"checkpoint-{number:06d}.npz" for number in numbers]


class RunsCode:
    def __reduce__(self):
        return print, ("code of the file runs",)


def npy(array):
    file = io.BytesIO()
    onp.save(file, array)
    return file.getvalue()


def crafted(facts=None, compression=zipfile.ZIP_STORED, says=0, **members):
    """Damage that has the right checksum: a file that somebody made, or another version. ``says``: the length of its
    last member, as the file claims it."""
    facts = json.dumps({**HEADER, "facts": {}}) if facts is None else facts

    def damage(path):
        with zipfile.ZipFile(path, "w", compression) as made:
            for name, content in {"facts": npy(facts), **members}.items():
                made.writestr(f"{name}.npy", content)
            made.filelist[-1].file_size = says or made.filelist[-1].file_size
        content = path.read_bytes()[:-2]
        path.write_bytes(content + b"\x40\0" + hashlib.sha256(content).hexdigest().encode())

    return damage


HUGE = npy(onp.ones(8)).replace(b"(8,), }" + b" " * 12, b"(8%s,), }" % (b"0" * 12))
CODE = onp.array([RunsCode()], dtype=object)
DAMAGED = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "foreign": lambda path: onp.savez(path, x=onp.ones(3)),
    "folder": lambda path: path.unlink() or path.mkdir(),
    "code": crafted(CODE),
    "code in an array": crafted(x=npy(CODE)),
    "code in a header": crafted(x=npy(onp.ones(8)).replace(b"(8,), }      ", b"print(1), }  ")),
    "nested JSON": crafted("[" * 9_999),
    "a list": crafted("[]"),
    "a list for the training": crafted(json.dumps({**HEADER, "training": [], "facts": {}})),
    "a list for the facts": crafted(json.dumps({**HEADER, "facts": []})),
    "no facts": crafted(json.dumps(HEADER)),
    "compressed, and no shorter": crafted(
        compression=zipfile.ZIP_DEFLATED, **{f"x{n}": npy(onp.ones(0)) for n in range(10)}
    ),
    "huge": crafted(x=HUGE),
    "huge, and it says so": crafted(x=HUGE, says=8 * 8 * 10**12 + 1000),
    "no array": crafted(x=b"x" * 100),
}
WHOLE = json.dumps({**HEADER, "facts": {}})
DTYPES = ("float16", "float32", "float64", "int32", "int64", "uint8", "bool")
KINDS = st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=4))
NUMBERS = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False)
VALUES = st.recursive(
    st.none() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def disguised(value):
    """The same in other kinds, as a training has them."""
    if isinstance(value, dict):
        return MappingProxyType({key: disguised(item) for key, item in value.items()})
    if isinstance(value, list):
        return tuple(map(disguised, value))
    if isinstance(value, float) and abs(value) < 1e30:
        return np.array([[value]], dtype="float64") if value > 0 else onp.float64(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return mx.nd.array([value], dtype="int64") if value > 0 else onp.int64(value)
    return value


@settings(max_examples=30)
@given(kinds=st.lists(KINDS, max_size=11), facts=st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
def test_arrays_of_all_kinds_and_facts_come_back(kinds, facts, tmp_path_factory):
    path = tmp_path_factory.mktemp("kept") / "checkpoint-000001.npz"
    arrays = {}
    for number, (dtype, shape) in enumerate(kinds):
        values = onp.random.RandomState(number).randint(0, 256, [*shape, onp.dtype(dtype).itemsize], "uint8")
        arrays[f"parameters/{number}.w"] = (values % 2 if dtype == "bool" else values).view(dtype).reshape(shape)
    write_checkpoint(path, arrays, json.dumps(plain(disguised({**HEADER, "facts": facts}))))
    assert names(path.parent) == [path.name]
    kept, was = read_checkpoint(path)
    assert json.dumps(was) == json.dumps({**HEADER, "facts": facts})
    with onp.load(str(path), allow_pickle=False) as by_numpy:
        assert {*by_numpy} == {"facts", *arrays}
        for back in (kept, by_numpy):
            for name, array in arrays.items():
                assert (back[name].dtype, back[name].shape) == (array.dtype, array.shape)
                assert back[name].tobytes() == array.tobytes()


def test_every_byte_counts_and_so_does_the_length(tmp_path):
    """In a short file each; in one that is read by pieces those where pieces meet, and its ends."""
    path = tmp_path / "checkpoint-000001.npz"
    for size in (1, PIECE - 700, 2 * PIECE + 5):
        write_checkpoint(path, {"x": onp.arange(size).astype("uint8")}, WHOLE)
        whole = path.read_bytes()
        places = range(len(whole))
        if size > 1:
            near = {PIECE * piece + step for piece in range(3) for step in (-1, 0, 1)}
            near |= {len(whole) + back for back in (-1, -64, -65, -66, -67)}
            places = sorted(near & set(places))
        for place in places:
            changed = bytearray(whole)
            changed[place] ^= 1
            for content in (changed, whole[:place], whole + whole[: place + 1]):
                with pytest.raises(ValueError, match="checksum is wrong"):
                    check_whole(io.BytesIO(content))
        assert check_whole(io.BytesIO(whole)) == len(whole) - 66
        with zipfile.ZipFile(path) as members:
            assert members.comment == hashlib.sha256(whole[:-66]).hexdigest().encode()
        assert read_checkpoint(path)[1] == {**HEADER, "facts": {}}


def test_an_array_of_objects_is_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"[Oo]bject array"):
        write_checkpoint(tmp_path / "checkpoint-000001.npz", {"x": onp.array([print], dtype=object)}, WHOLE)
    assert names(tmp_path) == []


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_or_foreign_file_is_refused_and_nothing_of_it_run(what, tmp_path, capfd):
    """Nor is more memory taken than it has bytes: "huge" is refused at once."""
    path = tmp_path / "checkpoint-000001.npz"
    write_checkpoint(path, {"x": onp.zeros(3)}, WHOLE)
    DAMAGED[what](path)
    with pytest.raises(UNREADABLE):
        read_checkpoint(path)
    assert capfd.readouterr() == ("", "")


def test_a_file_is_on_the_disk_before_its_name_and_its_name_before_the_end(tmp_path, monkeypatch):
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
    path = tmp_path / "checkpoint-000001.npz"
    write_checkpoint(path, {}, WHOLE)
    (file, size), (old, new), (folder, _) = done
    assert (file, new, folder) == (old, str(path), str(tmp_path))
    assert old == f"{path}.{os.uname().nodename}-{os.getpid()}.part"
    assert size == path.stat().st_size, "all of it was flushed"


@pytest.mark.parametrize(
    ("bad", "kind"), [({1}, "set"), (b"x", "bytes"), (onp.ones(2), "ndarray"), ({1: 2}, "dict"), (print, "builtin_")]
)
def test_a_fact_that_json_can_not_say_is_named(bad, kind):
    for facts, name in (({"a": {"b": bad}}, "b"), ({"a": [0, bad]}, r"a\[1\]"), (bad, "facts")):
        with pytest.raises(MxdpError, match=f"^a checkpoint can't keep {name}, which is {kind}"):
            plain(facts)


FACTS = st.dictionaries(st.sampled_from("abcdefghijk"), st.integers(0, 2), max_size=11)


@given(there=FACTS, here=FACTS)
def test_another_training_is_told_by_the_first_three_facts_that_differ(there, here):
    names_ = [*here, *(name for name in there if name not in here)]
    differ = [name for name in names_ if here.get(name) != there.get(name)]
    if not differ:
        return match("folder", there, here)
    with pytest.raises(MxdpError, match=r"^folder holds another training: ") as error:
        match("folder", there, here)
    told = str(error.value)
    assert [name for name in differ if f" {name} is " in told] == differ[:3]
    assert f"{differ[0]} is {there.get(differ[0])} there and {here.get(differ[0])} here" in told
    assert (", ..." in told) == (len(differ) > 3)

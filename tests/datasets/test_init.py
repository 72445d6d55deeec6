"""``load``, what importing ``mxdp.datasets`` costs, files of a reader's own, and Fashion-MNIST."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from mxdp.datasets import fashion_mnist, load, to_train
from mxdp.datasets.fashion_mnist import CLOTHES, FILES, MIRRORS, cache_root, load_fashion_mnist, parse_split
from mxdp.datasets.own import ARRAYS
from mxdp.datasets.records import Dataset
from mxdp.errors import DataError
from mxdp.experiments.__main__ import main

INSTEAD = "using scikit-learn's digits instead of Fashion-MNIST (docs/messages.md): "


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_what_needs_no_file_is_drawn_by_the_seed_says_nothing_and_may_be_changed(name, capsys):
    one, same, other = load(name, seed=1), load(name, seed=1), load(name, seed=2)
    assert one.name == name
    assert np.array_equal(one.train.X, same.train.X)
    assert not np.array_equal(one.train.X, other.train.X)
    one.train.X[:] = 0
    assert np.array_equal(load(name, seed=1).train.X, same.train.X)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("name", "hint"), [("digit", "did you mean 'digits'? There"), ("", "there"), (None, "there")])
def test_an_unknown_name(name, hint):
    with pytest.raises(ValueError, match="no data set") as caught:
        load(name)
    end = f"is called {name!r}; {hint} are: auto, fashion-mnist, digits, synthetic, FILE.npz."
    assert str(caught.value).endswith(end)


def test_auto_takes_fashion_mnist_where_it_can_be_downloaded(small, monkeypatch, server):
    monkeypatch.setattr(fashion_mnist, "MIRRORS", (server.mirror("none", {}), server.mirror("good", small.contents)))
    lines, seen = [], []
    data = load("auto", notify=lines.append, progress=lambda *arguments: seen.append(arguments))
    assert data.name == "fashion-mnist"
    assert np.array_equal(data.test.y, small.labels["t10k"])
    assert len(lines) == 1
    assert seen[-1][1:] == (sum(file.size for file in small.files),) * 2


@pytest.mark.parametrize("offline", ["", "1"])
def test_auto_takes_the_digits_where_there_is_no_network_and_says_so_in_one_line(monkeypatch, server, capsys, offline):
    monkeypatch.setattr(fashion_mnist, "MIRRORS", (server.mirror("none", {}),))
    monkeypatch.setenv("MXDP_OFFLINE", offline)
    data = load("auto", seed=3)
    assert data.name == "digits"
    assert np.array_equal(data.train.X, load("digits", seed=3).train.X)
    *before, line = capsys.readouterr().err.splitlines()
    assert line.startswith(INSTEAD)
    if offline:
        assert line.endswith(", and MXDP_OFFLINE forbids downloading it")
        assert (before, server.requests) == ([], [])
        with pytest.raises(DataError, match="MXDP_OFFLINE forbids"):
            load("fashion-mnist")
    else:
        assert "train-images-idx3-ubyte.gz could not be downloaded (127.0.0.1:" in line
        assert [each.partition(" into ")[0] for each in before] == ["downloading 4 of 4 files (30.9 MB)"]


def test_a_folder_that_the_user_named_is_passed_over_neither_for_the_cache_nor_for_the_digits(
    put, tmp_path, monkeypatch
):
    put(tmp_path / "cache-home" / "mxdp" / "fashion-mnist")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="empty holds neither fashion-mnist/ nor train-images-idx3"):
        load("auto", data_dir=empty)
    monkeypatch.setenv("MXDP_DATA_DIR", str(empty))
    with pytest.raises(DataError, match="empty holds neither"):
        load("auto")


def test_no_split_of_what_is_trained_is_empty():
    data = load("synthetic").take(3, 2)
    assert to_train(data) is data
    none = type(data.train)(data.train.X[:0], data.train.y[:0])
    for what, splits in (("training", (none, data.test)), ("test", (data.train, none))):
        with pytest.raises(ValueError, match=f"the {what} split of 'mine' is empty"):
            to_train(Dataset("mine", *splits, data.classes, "here"))


def test_importing_data_sets_timelines_and_pictures_loads_neither_mxnet_nor_the_heavy_libraries():
    heavy = {"mxnet", "sklearn", "requests", "filelock", "matplotlib"}
    code = f"import sys, mxdp.datasets; from mxdp.tracing import draw, split; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], timeout=60) == b"[]\n"


@pytest.fixture
def given():
    X = np.random.RandomState(0).uniform(size=(6, 1, 28, 28)).astype("float32")
    return dict(zip(ARRAYS, [X[:4], np.array([0, 9, 1, 1]), X[4:], np.array([2, 3])]))


def test_a_file_of_savez_is_a_data_set(given, tmp_path):
    np.savez(tmp_path / "mine.npz", **given)
    (tmp_path / "link.npz").symlink_to(tmp_path / "mine.npz")
    for file in (tmp_path / "mine.npz", str(tmp_path / "mine.npz"), tmp_path / "link.npz"):
        data = load(file)
        assert (data.name, len(data.train), len(data.test), len(data.classes)) == (Path(file).stem, 4, 2, 10)
        data.train.X[:] = 0.5  # the caller may change it: the file, and who loads it next, have their own
        data = load(file)
        assert np.array_equal(data.train.X, given["X"])
        assert data.test.y.tolist() == [2, 3]


def check_refused(file, said):
    with pytest.raises(DataError, match=said) as refused:
        load(file)
    assert str(refused.value).startswith(str(file))
    assert "\n" not in str(refused.value)


def test_what_is_no_such_file_is_a_sentence(given, tmp_path):
    file = tmp_path / "mine.npz"
    check_refused(file, r"can't be read \(No such file or directory\): write it by numpy.savez\(FILE, X=X, y=y, ")
    np.savez(file, **given)
    for damaged in (b"hello", file.read_bytes()[:-500]):
        file.write_bytes(damaged)
        check_refused(file, "is damaged, or no file of numpy.savez")
    with open(file, "wb") as one:
        np.save(one, given["X"])
    check_refused(file, "holds one array alone")
    np.savez(file, X=given["X"], y_test=given["y_test"])
    check_refused(file, "has no y and no X_test: write it by")
    X = given["X_test"]
    for other, said in (
        (np.array([{}], dtype=object), "is damaged"),
        ((X * 255).astype("uint8"), "X_test and y_test: X must be float32 .* / 255$"),
        (X[:, :, 4:], "give both the same channels"),
    ):
        np.savez(file, **{**given, "X_test": other})
        check_refused(file, said)


def test_experiments_say_which_files_they_take(given, tmp_path, capsys):
    file = tmp_path / "mine.npz"
    coloured = {name: np.repeat(given[name], 3, axis=1) for name in ("X", "X_test")}
    for other, held in ((coloured, "3"), ({"y": given["y"] + 9}, "1")):
        np.savez(file, **{**given, **other})
        assert main(["run", "epochs", "--data", str(file), "--out", str(tmp_path / "out")]) == 2
        said = capsys.readouterr().err
        assert f"{file} holds pictures ({held}, 28, 28) of " in said
        assert "experiments train LeNet, which takes (1, 28, 28) of at most 10" in said


REAL_DATA_DIR = os.environ.get("MXDP_DATA_DIR")
OFFICIAL_MIRRORS = MIRRORS
FIRST, *_, LAST = (file.name for file in FILES)


def quiet(line):
    pytest.fail(f"nothing should be said, but: {line}")


@pytest.mark.parametrize(
    ("place", "data_dir", "environment"),
    [
        ("data/fashion-mnist", "{}/data", None),
        ("data", "{}/data", None),  # the files in the folder itself
        ("data/fashion-mnist", None, "{}/data"),
        ("data", "{}/data", "{}/does-not-exist"),
        ("data", "~/data", None),
        ("cache-home/mxdp/fashion-mnist", None, None),
    ],
)
def test_where_the_files_are_looked_for(small, put, tmp_path, monkeypatch, place, data_dir, environment):
    folder = put(tmp_path / place)
    monkeypatch.setenv("HOME", str(tmp_path))
    if environment:
        monkeypatch.setenv("MXDP_DATA_DIR", environment.format(tmp_path))
    data = load_fashion_mnist(data_dir and data_dir.format(tmp_path), quiet)
    for split, part in ((data.train, "train"), (data.test, "t10k")):
        assert np.array_equal(split.X[:, 0], small.pixels[part].astype(np.float32) / np.float32(255))
        assert np.array_equal(split.y, small.labels[part])
        assert split.X.flags.c_contiguous
    assert (data.name, len(data.classes)) == ("fashion-mnist", 10)
    assert data.origin == f"Fashion-MNIST, the official files in {folder}"


@pytest.mark.parametrize("proxy", [False, True])
def test_no_mirror_delivers(small, proxy, tmp_path, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        if proxy:
            monkeypatch.setenv("http_proxy", f"http://{address}")
            address = "mirror.invalid"
        monkeypatch.setattr(fashion_mnist, "MIRRORS", (f"http://{address}/",))
        with pytest.raises(DataError) as caught:
            load_fashion_mnist(None, lambda line: None)
    assert str(caught.value) == (
        f"{FIRST} could not be downloaded ({address}: {'the proxy: ' * proxy}"
        "Failed to establish a new connection: [Errno 111] Connection refused); "
        f"by hand: put {FIRST} and the other three official files into {tmp_path}/cache-home/mxdp/fashion-mnist"
    )


def test_each_file_of_a_named_folder_that_lacks_or_is_wrong_is_named_and_stays(small, put, tmp_path):
    folder = put(tmp_path / "data")
    (folder / FIRST).unlink()
    (folder / LAST).write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError) as caught:
        load_fashion_mnist(folder, quiet)
    first, last, cure = str(caught.value).split("; ")
    assert first == f"{folder / FIRST} can't be read (No such file or directory)"
    assert last.startswith(f"{folder / LAST} is not the official file (22 of ")
    assert cure == "put the official files there, or name no folder and let mxdp download them"
    assert (folder / LAST).read_bytes() == b"<html>not found</html>"
    with pytest.raises(DataError, match="nowhere is not a folder; name one that holds fashion-mnist/ with train-im"):
        load_fashion_mnist(tmp_path / "nowhere", quiet)


def test_the_cache_lies_under_xdg_cache_home_or_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/where")
    assert cache_root() == Path("/some/where/mxdp")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/not/allowed")
    assert cache_root() == tmp_path / ".cache" / "mxdp"
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    with pytest.raises(DataError, match="no home folder to keep a cache in; set XDG_CACHE_HOME"):
        cache_root()


def test_there_is_more_than_one_mirror_and_each_address_ends_in_a_slash():
    assert len({mirror.split("/")[2] for mirror in OFFICIAL_MIRRORS}) == len(OFFICIAL_MIRRORS) >= 2
    assert all(re.fullmatch(r"https?://.*/", mirror) for mirror in OFFICIAL_MIRRORS)


@pytest.mark.skipif(not REAL_DATA_DIR, reason="MXDP_DATA_DIR names the folder that holds the real fashion-mnist/")
def test_the_real_files():
    contents = [file.read(Path(REAL_DATA_DIR, "fashion-mnist")) for file in FILES]
    split = parse_split(*contents[2:])
    assert split.X.shape == (10_000, 1, 28, 28)
    assert np.bincount(split.y).tolist() == [1000] * 10
    assert [CLOTHES[label] for label in split.y[:4]] == ["ankle boot", "pullover", "trouser", "trouser"]

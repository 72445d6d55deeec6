"""``mxdp.datasets`` itself: ``load``, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mxdp.datasets import fashion_mnist, load, to_train
from mxdp.datasets.records import Dataset
from mxdp.errors import DataError

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

"""``mxdp.datasets`` itself: ``load``, and what importing it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mxdp
from mxdp.datasets import fashion_mnist, load
from mxdp.errors import DataError


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_what_needs_no_file_is_drawn_by_the_seed_and_says_nothing(name, capsys):
    one, same, other = load(name, seed=1), load(name, seed=1), load(name, seed=2)

    assert one.name == name
    assert np.array_equal(one.train.X, same.train.X)
    assert not np.array_equal(one.train.X, other.train.X)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("fashion_mnist", "did you mean 'fashion-mnist'? There"),
        ("digit", "did you mean 'digits'? There"),
        ("", "there"),
        (None, "there"),
    ],
)
def test_an_unknown_name(name, hint):
    with pytest.raises(ValueError, match="no data set") as caught:
        load(name)

    end = f"is called {name!r}; {hint} are: auto, fashion-mnist, digits, synthetic, FILE.npz."
    assert str(caught.value).endswith(end)


def test_auto_takes_fashion_mnist_where_it_can_be_downloaded(made_up, monkeypatch, server, tmp_path):
    monkeypatch.setattr(fashion_mnist, "FILES", made_up.files)
    monkeypatch.setattr(fashion_mnist, "MIRRORS", (server.mirror("none", {}), server.mirror("good", made_up.contents)))
    lines, seen = [], []

    data = load("auto", notify=lines.append, progress=lambda *arguments: seen.append(arguments))

    assert data.name == "fashion-mnist"
    assert np.array_equal(data.test.y, made_up.labels["t10k"])
    folder = tmp_path / "cache-home" / "mxdp" / "fashion-mnist"
    assert lines == [f"downloading 4 of 4 files (0.1 MB) into {folder}"]
    assert seen[-1][1:] == (sum(file.size for file in made_up.files),) * 2


def test_auto_takes_the_digits_where_there_is_no_network_and_says_so_in_one_line(monkeypatch, server):
    monkeypatch.setattr(fashion_mnist, "MIRRORS", (server.mirror("none", {}),))
    lines = []

    data = load("auto", seed=3, notify=lines.append)

    assert data.name == "digits"
    assert np.array_equal(data.train.X, load("digits", seed=3).train.X)
    assert len(lines) == 2
    assert lines[0].startswith("downloading 4 of 4 files (30.9 MB) into ")
    assert lines[1].startswith("using scikit-learn's digits instead of Fashion-MNIST (docs/messages.md): ")
    assert "train-images-idx3-ubyte.gz could not be downloaded (127.0.0.1:" in lines[1]
    assert "\n" not in lines[1]


def test_auto_offline_asks_nobody(monkeypatch, server, capsys):
    monkeypatch.setattr(fashion_mnist, "MIRRORS", (server.mirror("good", {}),))
    monkeypatch.setenv("MXDP_OFFLINE", "1")

    assert load("auto").name == "digits"

    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("using scikit-learn's digits instead of Fashion-MNIST (docs/messages.md): ")
    assert err.endswith(", and MXDP_OFFLINE forbids downloading it\n")
    assert server.requests == []


@pytest.mark.parametrize("by_environment", [True, False])
def test_a_folder_that_the_user_named_is_passed_over_neither_for_the_cache_nor_for_the_digits(
    put, tmp_path, monkeypatch, by_environment
):
    put(tmp_path / "cache-home" / "mxdp" / "fashion-mnist")
    (tmp_path / "empty").mkdir()
    if by_environment:
        monkeypatch.setenv("MXDP_DATA_DIR", str(tmp_path / "empty"))

    with pytest.raises(DataError, match="empty holds neither fashion-mnist/ nor train-images-idx3"):
        load("auto", data_dir=None if by_environment else tmp_path / "empty")


def test_fashion_mnist_by_name_never_becomes_the_digits(monkeypatch):
    monkeypatch.setenv("MXDP_OFFLINE", "1")

    with pytest.raises(DataError, match="MXDP_OFFLINE forbids"):
        load("fashion-mnist")


def test_importing_it_loads_neither_mxnet_nor_the_heavy_libraries():
    heavy = {"mxnet", "sklearn", "requests", "filelock"}
    code = f"import sys, mxdp.datasets; print(sorted({heavy} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(Path(mxdp.__path__[0]).parent)}

    out = subprocess.check_output([sys.executable, "-c", code], env=environment, timeout=60)

    assert out == b"[]\n"

from __future__ import annotations

import hashlib
import os
import re
import socket
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from mxdp.datasets import fashion_mnist
from mxdp.datasets.fashion_mnist import CLOTHES, FILES, MIRRORS, cache_root, load_fashion_mnist, parse_split
from mxdp.errors import DataError

REAL_DATA_DIR = os.environ.get("MXDP_DATA_DIR")
OFFICIAL_MIRRORS = MIRRORS
FIRST, *_, LAST = (file.name for file in FILES)
TEST_PIXELS = "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a"
"""sha256 of the pixel bytes, taken from the official file with gzip and tail alone: ``gzip -dc | tail -c +17``."""


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
    """What is decoded from the smaller ones: every pixel, by its sum, and the labels."""
    contents = [file.read(Path(REAL_DATA_DIR, "fashion-mnist")) for file in FILES]
    split = parse_split(*contents[2:])
    assert split.X.shape == (10_000, 1, 28, 28)
    assert np.bincount(split.y).tolist() == [1000] * 10
    assert [CLOTHES[label] for label in split.y[:4]] == ["ankle boot", "pullover", "trouser", "trouser"]
    assert hashlib.sha256(np.rint(split.X * 255).astype(np.uint8)).hexdigest() == TEST_PIXELS

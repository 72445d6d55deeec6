from __future__ import annotations

import gzip
import hashlib
import tracemalloc

import pytest

from mxdp.datasets.known_file import KnownFile, MissingFile, WrongFile

DATA = gzip.compress(bytes(range(256)) * 8)
FILE = KnownFile("a.gz", len(DATA), hashlib.sha256(DATA).hexdigest())


def test_the_right_bytes_are_returned(tmp_path):
    (tmp_path / "a.gz").write_bytes(DATA)

    assert FILE.read(tmp_path / "a.gz") == DATA


def test_a_missing_file(tmp_path):
    with pytest.raises(MissingFile, match=r"a\.gz does not exist$"):
        FILE.read(tmp_path / "a.gz")


@pytest.mark.parametrize("length", [0, 1, 2, 12, len(DATA) - 1])
def test_a_truncated_file(tmp_path, length):
    (tmp_path / "a.gz").write_bytes(DATA[:length])

    with pytest.raises(WrongFile, match=rf"a\.gz is truncated \({length} of {len(DATA)} bytes\)$"):
        FILE.read(tmp_path / "a.gz")


def test_a_flipped_bit(tmp_path):
    damaged = bytearray(DATA)
    damaged[40] ^= 1
    (tmp_path / "a.gz").write_bytes(bytes(damaged))

    found = hashlib.sha256(damaged).hexdigest()[:12]
    with pytest.raises(
        WrongFile, match=rf"is damaged \(its sha256 is {found}\.\.\., the official file's {FILE.sha256[:12]}"
    ):
        FILE.read(tmp_path / "a.gz")


@pytest.mark.parametrize(
    "data", [gzip.compress(b"something else"), b"<html>", DATA + b"x"], ids=["gzip", "html", "long"]
)
def test_another_file(tmp_path, data):
    (tmp_path / "a.gz").write_bytes(data)

    with pytest.raises(WrongFile, match=rf"is not the official file \({len(data)} bytes instead of {len(DATA)}\)$"):
        FILE.read(tmp_path / "a.gz")


def test_of_a_long_file_no_more_is_read_than_the_official_one_has(tmp_path):
    with (tmp_path / "a.gz").open("wb") as file:
        file.truncate(1 << 26)
    tracemalloc.start()
    try:
        with pytest.raises(WrongFile, match=rf"is not the official file \({1 << 26} bytes instead of {len(DATA)}\)$"):
            FILE.read(tmp_path / "a.gz")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_a_folder_in_its_place(tmp_path):
    (tmp_path / "a.gz").mkdir()

    with pytest.raises(WrongFile, match=r"a\.gz can't be read \(Is a directory\)$"):
        FILE.read(tmp_path / "a.gz")

"""Files of a reader's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mxdp.datasets import load
from mxdp.datasets.own import ARRAYS
from mxdp.errors import DataError
from mxdp.experiments.__main__ import main


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
    file.write_text("hello")
    check_refused(file, "is damaged, or no file of numpy.savez")
    np.savez(file, **given)
    file.write_bytes(file.read_bytes()[:-500])
    check_refused(file, "is damaged")
    with open(file, "wb") as one:
        np.save(one, given["X"])
    check_refused(file, "holds one array alone")
    np.savez(file, X=given["X"], y=given["y"], X_test=np.array([{}], dtype=object), y_test=given["y_test"])
    check_refused(file, "is damaged")


def test_arrays_that_make_no_data_set_are_a_sentence(given, tmp_path):
    file = tmp_path / "mine.npz"
    np.savez(file, X=given["X"], y_test=given["y_test"])
    check_refused(file, "has no y and no X_test: write it by")
    np.savez(file, **{**given, "X_test": (given["X_test"] * 255).astype("uint8")})
    check_refused(file, "X_test and y_test: X must be float32 .* / 255$")
    np.savez(file, **{**given, "X_test": given["X_test"][:, :, 4:]})
    check_refused(file, "give both the same channels")


def test_experiments_say_which_files_they_take(given, tmp_path, capsys):
    file = tmp_path / "mine.npz"
    coloured = {name: np.repeat(given[name], 3, axis=1) for name in ("X", "X_test")}
    for other, held in ((coloured, "3"), ({"y": given["y"] + 9}, "1")):
        np.savez(file, **{**given, **other})
        assert main(["run", "epochs", "--data", str(file), "--out", str(tmp_path / "out")]) == 2
        said = capsys.readouterr().err
        assert f"{file} holds pictures ({held}, 28, 28) of " in said
        assert "experiments train LeNet, which takes (1, 28, 28) of at most 10" in said

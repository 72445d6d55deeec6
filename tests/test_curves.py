import sys
from types import SimpleNamespace

import pytest

from mxdp.curves import Curves


def test_a_curve_for_each_training():
    curves = Curves()
    curves("1 x cpu", [0.5])
    curves("1 x cpu", [0.5, 0.7])
    curves("2 x cpu", [0.6])
    (axes,) = curves.figure().axes
    drawn = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    assert drawn == {"1 x cpu": ([1, 2], [0.5, 0.7]), "2 x cpu": ([1], [0.6])}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "test accuracy")


def test_a_file_is_written_after_each_epoch_and_nothing_beside_it(tmp_path):
    curves = Curves(tmp_path / "accuracy.svg")
    curves("1 x cpu", [0.5])
    first = (tmp_path / "accuracy.svg").read_text()
    curves("1 x cpu", [0.5, 0.7])
    assert first.startswith("<?xml")
    assert (tmp_path / "accuracy.svg").read_text() != first
    assert [file.name for file in tmp_path.iterdir()] == ["accuracy.svg"]


def test_a_file_that_is_no_picture_is_refused_before_the_training(tmp_path):
    with pytest.raises(ValueError, match=r"accuracy\.txt must end in one of .*svg"):
        Curves(tmp_path / "accuracy.txt")


class ZMQInteractiveShell:
    """IPython's name for a notebook's shell."""


def test_a_notebook_shows_one_picture_and_renews_it(monkeypatch):
    IPython = pytest.importorskip("IPython.display") and sys.modules["IPython"]
    shown, renewed = [], []
    for shell in (None, ZMQInteractiveShell()):
        assert shown == renewed == []
        monkeypatch.setattr(IPython, "get_ipython", lambda shell=shell: shell)
        shows = lambda image, display_id: shown.append(image) or SimpleNamespace(update=renewed.append)  # noqa: E731
        monkeypatch.setattr(IPython.display, "display", shows)
        curves = Curves()
        curves("1 x cpu", [0.5])
        curves("1 x cpu", [0.5, 0.7])
    assert [image.data[:4] for image in (*shown, *renewed)] == [b"\x89PNG"] * 2

"""``import mxdp.book``: what the book's code finds then, and that everything can be undone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as onp
import pytest

from mxdp import book, timing
from mxdp.backend import mx
from mxdp.book import __main__ as command
from mxdp.datasets import load
from mxdp.errors import UsageError

d2l = book.d2l
book.restore()  # the import has replaced them in pytest's process
ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = ("multiple-gpus", "multiple-gpus-concise", "auto-parallelism", "async-computation", "hybridize")

np, npx = mx.np, mx.npx  # as the book imports them


@pytest.fixture
def replaced(monkeypatch):
    monkeypatch.delenv(book.DEVICES, raising=False)
    monkeypatch.delenv(book.SAMPLES, raising=False)
    book.say_once.cache_clear()
    book.replace()
    yield book
    book.restore()


def test_all_is_listed_and_undone_and_a_second_call_does_nothing(replaced, capsys):
    names = book.replaced()
    book.replace()
    assert command.main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == book.replaced() == names
    assert {"d2l.mxnet.try_gpu", "mxnet.numpy_extension.gpu", "ndarray.dot"} <= set(names)
    before = [place[:3] for place in book._replaced]
    book.restore()
    assert book.replaced() == []
    assert all(vars(owner)[name] is usual for owner, name, usual in before)


def test_what_somebody_has_replaced_since_stays(replaced):
    def own(i=0):
        return mx.cpu(7)

    d2l.try_gpu = own
    assert "d2l.mxnet.try_gpu" not in book.replaced()
    usual = next(usual for _, name, usual, _ in book._replaced if name == "try_gpu")
    book.restore()
    assert d2l.try_gpu is own
    d2l.try_gpu = usual


@pytest.mark.parametrize("there", [0, 1, 2, 3])
def test_gpus_are_taken_if_there_are_enough_else_different_cpus_and_cpu_0_stays_the_cpu(
    replaced, monkeypatch, capsys, there
):
    monkeypatch.setattr(book, "usable_gpus", lambda: [mx.gpu(number) for number in range(there)])
    expected = [mx.gpu(number) for number in range(there)] if there >= 2 else [mx.cpu(1), mx.cpu(2)]
    assert [d2l.try_gpu(i) for i in range(len(expected))] == d2l.try_all_gpus() == expected
    assert (d2l.num_gpus(), npx.cpu(), npx.gpu(1)) == (len(expected), mx.cpu(0), expected[1])
    words = "there are not 2 usable GPUs here: CPU devices work, cpu(1) for gpu(0), cpu(2) for gpu(1)"
    assert capsys.readouterr().err == ("" if there >= 2 else f"mxdp.book: {words}\n")


def test_more_devices_are_asked_for_by_a_variable(replaced, monkeypatch, capsys):
    with pytest.raises(ValueError, match=r"gpu\(2\) is not one of 2 devices: set MXDP_BOOK_DEVICES=3"):
        npx.gpu(2)
    assert d2l.try_gpu(2) == d2l.try_gpu(10) == mx.cpu(0)  # as the book's
    assert "try_gpu(10) is cpu(0), since there are 2 devices: MXDP_BOOK_DEVICES=11 gives" in capsys.readouterr().err
    monkeypatch.setenv(book.DEVICES, "3")
    assert d2l.try_gpu(2) == mx.cpu(3)
    for wrong in ("0", "two", "1.5"):
        monkeypatch.setenv(book.DEVICES, wrong)
        with pytest.raises(UsageError, match=f"MXDP_BOOK_DEVICES must be a whole number, not '{wrong}'"):
            d2l.try_all_gpus()


@pytest.fixture
def synthetic(monkeypatch):
    data = load("synthetic").take(70, 30)
    monkeypatch.setattr(book.datasets, "load", lambda notify: data)
    return data


def test_the_loader_gives_every_picture_once_in_an_order_of_each_epoch(replaced, synthetic):
    train, test = d2l.load_data_fashion_mnist(32)
    assert (len(train), len(test)) == (3, 1)
    orders = []
    for _ in range(2):
        batches = list(train)
        assert [(X.shape, y.shape) for X, y in batches] == [((n, 1, 28, 28), (n,)) for n in (32, 32, 6)]
        assert all((onp.dtype(X.dtype), onp.dtype(y.dtype)) == ("float32", "int32") for X, y in batches)
        X = onp.concatenate([X.asnumpy() for X, _ in batches])
        orders.append([int((picture == synthetic.train.X).all(axis=(1, 2, 3)).argmax()) for picture in X])
        assert sorted(orders[-1]) == list(range(70))
        assert onp.concatenate([y.asnumpy() for _, y in batches]).tolist() == synthetic.train.y[orders[-1]].tolist()
    assert orders[0] != orders[1]
    ((X, y),) = test
    assert (X.asnumpy() == synthetic.test.X).all()
    assert (y.asnumpy() == synthetic.test.y).all()


def test_the_loader_takes_fewer_pictures_and_other_sizes(replaced, synthetic, monkeypatch):
    monkeypatch.setenv(book.SAMPLES, "20")
    train, test = d2l.load_data_fashion_mnist(16, resize=14)
    assert [X.shape for X, _ in train] == [(16, 1, 14, 14), (4, 1, 14, 14)]
    assert sum(len(X) for X, _ in test) == 20
    with pytest.raises(ValueError, match="batch_size"):
        d2l.load_data_fashion_mnist(0)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, ""), (10, "70 s here, 10 of them 12 min"), (5e3, "9.7 h here, 10 of")]
)
def test_a_long_epoch_is_announced_once(replaced, synthetic, monkeypatch, capsys, seconds, words):
    now = iter(range(1000))
    monkeypatch.setattr(book.time, "perf_counter", lambda: seconds * next(now))
    train, test = d2l.load_data_fashion_mnist(10)
    for _ in range(2):
        list(train)
        list(test)
    printed = capsys.readouterr().err
    assert printed.count("an epoch of") == (seconds > 0)
    assert not seconds or printed.startswith(f"mxdp.book: an epoch of 70 pictures takes about {words}")


def test_a_long_product_is_announced_before_it_starts_once_a_size(replaced, monkeypatch, capsys):
    monkeypatch.setattr(book, "_operations_a_second", lambda: 1e9)
    x, small = np.ones((1000, 1000)), np.ones((400, 1000))
    for _ in range(2):
        assert (small.dot(x).asnumpy() == 1000).all()
        assert (np.dot(x, x).asnumpy() == 1000).all()
    assert (np.dot(np.ones((3,)), np.ones((3,))).item(), np.ones((2, 3)).dot(np.ones((3,))).tolist()) == (3, [3, 3])
    printed = capsys.readouterr().err
    assert printed.count("\n") == printed.count("a product of 1000 x 1000 and 1000 x 1000 takes about 2 s") == 1
    monkeypatch.setattr(book, "_operations_a_second", lambda: 1e12)
    book.say_once.cache_clear()
    assert (x.dot(x).asnumpy() == 1000).all()
    assert capsys.readouterr().err == ""


def test_the_speed_of_products_is_that_of_the_second_one(replaced, capsys):
    book._operations_a_second.cache_clear()
    x, seconds = np.ones((1000, 1000)), iter([0.0, 5.0, 10.0, 10.5])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing.time, "perf_counter", lambda: next(seconds))
        x.dot(x)  # 2e9 operations, where 2 * 512**3 take half a second
    book._operations_a_second.cache_clear()
    assert "takes about 4 s here, 50 of them 3 min; interrupt it" in capsys.readouterr().err


def test_gradients_flow_through_products_as_before(replaced):
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    x.attach_grad()
    with mx.autograd.record():
        y = x.dot(x).sum() + np.dot(x, x).sum()
    y.backward()
    assert x.grad.tolist() == [[14.0, 22.0], [18.0, 26.0]]


def test_outside_a_notebook_points_are_printed(replaced, capsys):
    animator = d2l.Animator("epoch", "test acc", xlim=[1, 10])
    animator.add(1, (0.25,))
    animator.add(2, 0.5)
    two = d2l.Animator(xlabel="epoch", legend=["train loss", "test acc"])
    two.add(0.5, (1.0, None))
    two.add(1, (None, 0.75))
    one = "epoch 1: test acc 0.250\nepoch 2: test acc 0.500\n"
    assert capsys.readouterr().out == f"{one}epoch 0.5: train loss 1.000\nepoch 1: test acc 0.750\n"
    assert (animator.X, animator.Y) == ([[1, 2]], [[0.25, 0.5]])
    assert (two.X, two.Y) == ([[0.5], [1]], [[1.0], [0.75]])


def test_in_a_notebook_the_books_animator_draws(replaced, monkeypatch):
    book.restore()
    usual = d2l.Animator
    monkeypatch.setattr(book, "in_notebook", lambda: True)
    book.replace()
    assert d2l.Animator is usual is not book.Animator


def run(folder, *words, **variables):
    line = [sys.executable, "-m", "mxdp.book", *map(str, words)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "MXDP_OFFLINE": "1", **variables}
    return subprocess.run(line, cwd=folder, env=environ, capture_output=True, text=True, timeout=280)


CELLS = """%load_ext d2lbook.tab
tab.interact_select('mxnet', 'pytorch', 'tensorflow', 'jax')
-
#@tab mxnet
%matplotlib inline
from d2l import mxnet as d2l
devices = d2l.try_all_gpus()
devices
-
#@tab pytorch
raise RuntimeError
-
%%tab mxnet, jax
!echo a shell
if tab.selected('mxnet', 'jax'):
    print(len(devices))
if tab.selected('pytorch'):
    raise RuntimeError
-
1 / 0
-
print("after")
"""
CELL = "Some text.\n\n```{.python .input}\n%s```\n\n```python\nraise RuntimeError\n```\n"
CHAPTER = "".join(CELL % cell for cell in CELLS.split("-\n"))


def test_a_chapters_cells_for_mxnet_run_in_order_up_to_one_that_fails(tmp_path):
    (tmp_path / "chapter.md").write_text(CHAPTER)
    done = run(tmp_path, "run", "chapter.md", "--devices", "3")
    lines = re.sub(r"^Out\[\d\]: ", "", done.stdout, flags=re.M).split("\n")
    assert lines[:3] == ["[cpu(1), cpu(2), cpu(3)]", "a shell", "3"], done.stderr
    assert (done.returncode, "after" in lines) == (1, False)
    assert "mxdp: cell 4 of 5 failed: ZeroDivisionError: division by zero" in done.stderr


def test_a_notebook_s_code_is_run(tmp_path, monkeypatch):
    cells = '[{"cell_type": "markdown", "source": ["no code"]}, {"cell_type": "code", "source": ["x = 2\\n", "x + 1"]}]'
    (tmp_path / "a.ipynb").write_text(f'{{"cells": {cells}}}')
    seen = []
    monkeypatch.setattr(command, "run_cells", seen.extend)
    command.main(["run", str(tmp_path / "a.ipynb")])
    assert seen == ["x = 2\nx + 1"]


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize(
    ("name", "text", "words", "message"),
    [
        ("a.md", None, [], r"a.md can't be read \(.*\); give a chapter \(.md\) or a notebook \(.ipynb\)"),
        ("a.txt", "", [], r"a.txt is neither a chapter \(.md\) nor a notebook \(.ipynb\)"),
        ("a.md", "# No code", [], "a.md has no cell for MXNet"),
        pytest.param("a.ipynb", "[" * 9999, [], "a.ipynb is no notebook", id="deep"),
        ("a.ipynb", '{"cells": [1]}', [], "a.ipynb is no notebook"),
        ("a.md", CHAPTER, ["--samples", "0"], "--samples must be at least 1, not 0"),
    ],
)
def test_what_can_not_be_run_is_refused_in_a_sentence(tmp_path, capsys, monkeypatch, name, text, words, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert command.main(["run", name, *words]) == 2
    assert re.fullmatch(f"mxdp: {message}.*\n", capsys.readouterr().err)


def test_without_the_books_library_it_says_how_to_install_it(tmp_path):
    (tmp_path / "d2l").mkdir()
    (tmp_path / "d2l" / "__init__.py").write_text("")
    done = run(tmp_path, "list", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert "mxdp.book needs the book's library" in done.stderr
    assert "pip install --no-deps d2l==1.0.3" in done.stderr
    assert done.stderr.count("\n") == 1, "no traceback"
    assert done.returncode == 1


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_books_chapters_run(tmp_path, chapter):
    """As they stand, but for the size of matrices, and with few pictures."""
    folder = os.environ.get("MXDP_BOOK_DIR")
    if not folder:
        pytest.skip("MXDP_BOOK_DIR names no clone of github.com/d2l-ai/d2l-en (the book's text is not part of mxdp)")
    text = (Path(folder) / "chapter_computational-performance" / f"{chapter}.md").read_text(encoding="utf-8")
    (tmp_path / "chapter.md").write_text(text.replace("(4000, 4000)", "(400, 400)"))
    done = run(tmp_path, "run", "chapter.md", "--samples", 512 if chapter == "multiple-gpus" else 32)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("test acc: 0.") == 2 * chapter.startswith("multiple")

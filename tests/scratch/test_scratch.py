"""The loops of the front door are what every other all-reduce must equal."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mxdp
from mxdp import scratch
from mxdp.backend import mx, np
from mxdp.datasets import load
from mxdp.scratch import naive_allreduce, ring_allreduce, train


def on_devices(host, dtype="float32"):
    return [np.array(x, dtype=dtype, ctx=mx.cpu(rank)) for rank, x in enumerate(host)]


@settings(max_examples=40)
@given(
    st.sampled_from([naive_allreduce, ring_allreduce]),
    st.integers(1, 7),
    st.lists(st.integers(1, 5), max_size=4).map(tuple),
    st.sampled_from(["float32", "float64", "int32"]),
)
def test_each_array_becomes_the_sum_in_place(loop, devices, shape, dtype):
    """In the order of the planned ring, too, which rounds as the loop does."""
    host = [onp.arange(onp.prod(shape)).reshape(shape) * (rank + 1) % 101 / 7 for rank in range(devices)]
    host = [x.astype(dtype) for x in host]
    data, planned = on_devices(host, dtype), on_devices(host, dtype)
    names = list(data)
    assert loop(data) is None
    assert all(x is name for x, name in zip(data, names))
    mxdp.allreduce(planned, "ring")
    for x, other in zip(data, planned):
        onp.testing.assert_allclose(x.asnumpy(), sum(host), rtol=1e-6)
        assert x.asnumpy().tobytes() == data[0].asnumpy().tobytes()
        if shape and (loop is ring_allreduce or devices <= 2):
            assert x.asnumpy().tobytes() == other.asnumpy().tobytes()


def test_training_ends_with_the_books_line_and_draws(monkeypatch, capsys):
    drawn, accuracies = [], iter([0.25, 0.5])
    data = load("synthetic").take(100, 100)
    monkeypatch.setattr(scratch, "evaluate", lambda split, replicas: (split is data.test) * next(accuracies))

    def draw(label, accuracies):
        drawn.append((label, [*accuracies]))
        accuracies.clear()  # the list is the drawing's

    assert mxdp.in_sync(train(2, 50, 0.2, 2, data, draw=draw))
    *epochs, last = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in epochs] == ["epoch 1", "epoch 2"], "a line each, into a file"
    assert drawn == [("2 x cpu", [0.25]), ("2 x cpu", [0.25, 0.5])]
    assert last.startswith("test acc: 0.50, ")
    assert last.endswith(" sec/epoch on [cpu(0), cpu(1)]; replicas in sync")


def test_replicas_out_of_sync_are_reported(capsys):
    train(2, 50, 0.2, 1, load("synthetic").take(100, 100), allreduce=lambda data: None)
    assert capsys.readouterr().out.endswith("; replicas OUT OF SYNC\n")


def test_epochs_are_timed_between_fences_and_have_orders_of_their_own(monkeypatch, capsys):
    """Epochs of 1 and of 4 seconds, two steps each."""
    log, times = [], iter([10.0, 11.0, 20.0, 24.0])
    monkeypatch.setattr(scratch.npx, "waitall", lambda: log.append("fence"))
    monkeypatch.setattr(scratch, "time", SimpleNamespace(perf_counter=lambda: (log.append("clock"), next(times))[1]))
    monkeypatch.setattr(scratch, "train_batch", lambda X, *more: log.append(X.tobytes()))
    train(1, 4, 0.2, 2, load("synthetic").take(8, 1))
    steps = [entry for entry in log if isinstance(entry, bytes)]
    assert len(set(steps)) == 4
    assert [entry if isinstance(entry, str) else "step" for entry in log] == [
        *["fence", "clock", "step", "fence", "step", "fence", "clock"] * 2, "fence"  # in_sync's own
    ]  # fmt: skip
    assert ", 2.5 sec/epoch on " in capsys.readouterr().out


def test_the_command_trains_on_each_number_of_devices(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["scratch", "--data", "digits", "--epochs", "1"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(scratch.__file__, run_name="__main__")
    assert [line.split(" on ")[1] for line in capsys.readouterr().out.splitlines() if " on " in line] == [
        "[cpu(0)]; replicas in sync",
        "[cpu(0), cpu(1)]; replicas in sync",
    ]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--data", "digit", "no data set is called 'digit'"),
        ("--devices", "0", "--devices takes numbers of devices, such as 1,2, not '0'"),
        ("--devices", "two", "'two'"),
        ("--epochs", "0", "num_epochs must be a positive int, not 0"),
    ],
)
def test_a_bad_command_is_told_in_a_sentence(option, value, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["scratch", "--data", "digits", option, value])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(scratch.__file__, run_name="__main__")
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_it_can_be_read_in_one_sitting():
    source = Path(scratch.__file__).read_text(encoding="utf-8")
    lines = source.splitlines()
    assert len(lines) <= 280
    assert max(map(len, lines)) <= 100
    modules = set(re.findall(r"^from (mxdp\S*)", source, re.M))
    assert modules == {"mxdp", "mxdp.backend", "mxdp.datasets", "mxdp.errors", "mxdp.plans.partition"}
    (after,) = re.findall(r"Read next: (\S+?),", source)
    assert Path(scratch.__file__).parents[1].joinpath(after).exists()

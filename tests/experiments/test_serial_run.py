"""What ``check_step`` compares, and that it would find."""

from __future__ import annotations

import pytest

from mxdp import train_batch
from mxdp.backend import devices
from mxdp.experiments.data_parallel.serial_run import check_step
from mxdp.experiments.oracle import count


def test_one_wrong_number_in_one_replica_is_counted():
    def spoilt(X, y, device_params, some, lr):
        train_batch(X, y, device_params, some, lr)
        if len(some) > 1:
            device_params[1][-1][0] += 1

    checked, wrong = count(check_step(devices(2, "cpu"), 6, step=spoilt, steps=1))
    # Once as a parameter that differs from the serial run's, once as bits that differ from the first replica's.
    assert (checked, wrong) == (129068 * 6, 2)


@pytest.mark.parametrize("replica", [1, 2])
def test_one_bit_of_any_replica_is_counted(replica):
    def spoilt(X, y, device_params, some, lr):
        train_batch(X, y, device_params, some, lr)
        if len(some) > 1:
            device_params[replica][0][0, 0, 0, 0] *= 1 + 2**-23

    # Within the tolerance of the serial run's number, but not the first replica's bits.
    assert count(check_step(devices(3, "cpu"), 6, step=spoilt, steps=1)) == (129068 * (3 + 2) * 2, 1)


@pytest.mark.parametrize(("last", "wrong"), [(1, 180), (2, 180), (3, 180), (4, 0)])
def test_every_step_is_compared(last, wrong):
    calls = []

    def late(X, y, device_params, some, lr):
        train_batch(X, y, device_params, some, lr)
        calls.append(len(some))
        if len(calls) == last:
            device_params[0][0] += 1

    assert count(check_step(devices(1, "cpu"), 6, step=late, steps=3)) == (3 * 2 * 129068, wrong)
    assert calls == [1] * 3


def test_a_relu_at_its_kink_is_no_error():
    """After a step parameters differ in their last bits: a sum near 0 may have another sign than the serial run's."""

    def shaken(X, y, device_params, some, lr):
        train_batch(X, y, device_params, some, lr)
        for params in device_params:
            for param in params:
                param += 1e-8

    for seed in (0, 6, 18):  # in the last two, parts of 61 samples met a kink
        assert count(check_step(devices(2, "cpu"), 61, seed, step=shaken))[1] == 0


def test_an_error_in_one_layer_shows_in_every_step():
    def frozen(X, y, device_params, some, lr):
        first = [[param.copy() for param in replica[:2]] for replica in device_params]
        train_batch(X, y, device_params, some, lr)
        for replica, kept in zip(device_params, first):
            for param, before in zip(replica, kept):
                param[:] = before

    _, wrong = count(check_step(devices(2, "cpu"), 6, step=frozen))
    assert wrong > 0.9 * 200 * 2 * 3

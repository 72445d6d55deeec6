"""What ``check_step`` compares, and that it would find."""

from __future__ import annotations

import pytest

from mxdp import train_batch
from mxdp.backend import devices
from mxdp.experiments.data_parallel.lenet_steps import check_step
from mxdp.experiments.oracle import count

NUMBERS = 129068


def spoilt(replica, change):
    """A step that then does ``change`` to the parameters of that replica, but not to the serial run's."""

    def step(X, y, device_params, some, lr):
        train_batch(X, y, device_params, some, lr)
        if len(some) > 1:
            change(device_params[replica])

    return step


def change_a_bit(params):
    params[0][0, 0, 0, 0] *= 1 + 2**-23


def test_a_wrong_bit_in_the_last_replica_is_counted():
    """It is within the tolerance, but not the first replica's."""
    step = spoilt(2, change_a_bit)
    assert count(check_step(devices(3, "cpu"), 6, step=step, steps=1)) == (NUMBERS * 2 * (3 + 2), 1)


@pytest.mark.parametrize(("last", "wrong"), [(1, 180), (3, 180), (4, 0)])
def test_every_step_is_compared(last, wrong):
    calls = []

    def late(X, y, device_params, some, lr):
        train_batch(X, y, device_params, some, lr)
        calls.append(len(some))
        if len(calls) == last:
            device_params[0][0] += 1

    assert count(check_step(devices(1, "cpu"), 6, step=late, steps=3)) == (3 * 2 * NUMBERS, wrong)
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

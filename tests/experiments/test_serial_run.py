"""What ``check_step`` compares, and that it would find."""

from __future__ import annotations

import pytest

from mxdp import train_batch
from mxdp.backend import devices
from mxdp.experiments.data_parallel.work.serial_run import check_step
from mxdp.experiments.measure.oracle import count


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


@pytest.mark.parametrize(("last", "caught"), [(3, True), (4, False)])
def test_every_step_is_compared(last, caught):
    calls = []

    def late(X, y, device_params, some, lr):
        train_batch(X, y, device_params, some, lr)
        calls.append(len(some))
        if len(calls) == last:
            device_params[0][0] += 1

    # One device, so that its own steps come after those of the serial run.
    checked, wrong = count(check_step(devices(1, "cpu"), 6, step=late, steps=3))
    assert calls == [1] * 3
    assert (checked, wrong > 0) == (2 * 129068, caught)


def test_an_error_in_the_first_layer_shows_in_the_others():
    """With the book's small weights it would not: 428 numbers would be wrong instead of 109,278."""

    def frozen(X, y, device_params, some, lr):
        first = [[param.copy() for param in replica[:2]] for replica in device_params]
        train_batch(X, y, device_params, some, lr)
        for replica, kept in zip(device_params, first):
            for param, before in zip(replica, kept):
                param[:] = before

    checked, wrong = count(check_step(devices(2, "cpu"), 6, step=frozen))
    assert wrong > checked / 20

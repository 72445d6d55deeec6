from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import mx
from mxdp.engine import prepare, prepare_sum


class Spelt(onp.float64):
    """As NumPy 2 spells its numbers in lists."""

    def __repr__(self):
        return f"np.float64({self!s})"


def test_numpys_numbers_are_attributes():
    x, w = mx.nd.array([3.0, 6.0]), mx.nd.array([1.0, 1.0])
    prepare("_mul_scalar", [x], x, scalar=Spelt(2))()
    assert x.asnumpy().tolist() == [6, 12]
    out = mx.nd.zeros((2,))
    prepare("multi_sgd_update", [w, x], out, lrs=[Spelt(0.5)], wds=(Spelt(0),), num_weights=onp.int64(1))()
    assert out.asnumpy().tolist() == [-2, -5]
    shaped = mx.nd.zeros((1, 2))
    prepare("Reshape", [x], shaped, shape=(onp.int64(1), onp.int32(2)), reverse=onp.bool_(False))()
    assert shaped.asnumpy().tolist() == [[6, 12]]


def test_the_arrays_are_kept():
    out = mx.nd.zeros((1000,))
    add = prepare("elemwise_add", [mx.nd.ones((1000,)), mx.nd.ones((1000,))], out)
    others = [mx.nd.full((1000,), 7) for _ in range(50)]
    add()
    assert set(out.asnumpy()) == {2.0}
    assert len(others) == 50


def test_an_unknown_operator_is_named():
    with pytest.raises(ValueError, match="no operator 'elemwise_ad'"):
        prepare("elemwise_ad", [], mx.nd.zeros((1,)))


def test_what_the_operator_refuses_it_still_refuses():
    call = prepare("elemwise_add", [mx.nd.zeros((2,)), mx.nd.zeros((3,))], mx.nd.zeros((2,)))
    with pytest.raises(mx.MXNetError, match=r"expected \[2\], got \[3\]"):
        call()


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_sum_into_its_first_part(count):
    parts = [mx.nd.array([1.0, 10.0]) * 2**number for number in range(count)]
    prepare_sum(parts, parts[0])()
    assert parts[0].asnumpy().tolist() == [2**count - 1, 10 * (2**count - 1)]
    assert parts[-1].asnumpy().tolist() == [2 ** (count - 1), 10 * 2 ** (count - 1)]

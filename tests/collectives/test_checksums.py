from __future__ import annotations

import numpy as onp
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_numbers import UNSHRUNK

from mxdp.backend import mx, np
from mxdp.collectives.checksums import Checksums


@settings(max_examples=40, phases=UNSHRUNK)
@given(drawn=st.data())
def test_whatever_element_differs_on_whatever_rank_its_parameter_is_named(drawn):
    """Of up to twelve parameters of three dtypes, some without elements. Whole numbers, whose squares differ."""
    shapes = drawn.draw(st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=12))
    dtypes = [drawn.draw(st.sampled_from(["float16", "float32", "float64"])) for _ in shapes]
    values = [onp.arange(onp.prod(shape, dtype=int)) % 9 - 4 for shape in shapes]
    params = [np.array(x.reshape(s), dtype=dtype, ctx=mx.cpu(1)) for x, s, dtype in zip(values, shapes, dtypes)]
    sums = Checksums(params)

    def told():
        sums.push()
        return b"".join(array.asnumpy().tobytes() for array in sums.arrays)

    plain = told()
    assert sorted(sums.numbers) == [number for number, param in enumerate(params) if param.size]
    squares = onp.frombuffer(plain, "float32")
    assert squares.tolist() == [(values[number] ** 2).sum() for number in sums.numbers]
    assert sums.differing([plain] * 3) == []
    full = [number for number, param in enumerate(params) if param.size]
    changed = drawn.draw(st.lists(st.sampled_from(full), max_size=3, unique=True)) if full else []
    for number in changed:
        place = drawn.draw(st.integers(0, params[number].size - 1))
        flat = params[number].as_nd_ndarray().reshape((-1,))
        flat[place : place + 1] += 1
    ranks = [plain] * 3
    ranks[drawn.draw(st.integers(0, 2))] = told()
    assert sorted(sums.differing(ranks)) == sorted(changed)

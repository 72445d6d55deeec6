from __future__ import annotations

import pytest

from mxdp.backend import mx, np
from mxdp.experiments import oracle
from mxdp.experiments.automatic_parallelism.products import Products, compare_products, factors, whole_factors

CPU = mx.cpu(0)


def pushed(count, chain):
    lefts, w = whole_factors(count, CPU, seed=3)
    made = Products(lefts, w, chain)
    for _ in range(2):  # pushed again, they are the same
        made.push()
    return made, lefts, w


@pytest.mark.parametrize("chain", [False, True])
@pytest.mark.parametrize("count", [1, 4])
def test_products_are_numpys(count, chain):
    made, lefts, w = pushed(count, chain)
    results = [[y] for y in made.results]
    assert oracle.count(compare_products(results, lefts, w, chain)) == (count * 33 * 33, 0)
    if count > 1:  # a chain is not taken for independent products, nor the other way round
        assert oracle.count(compare_products(results, lefts, w, not chain))[1] > 1000


def test_one_wrong_number_and_a_result_in_the_place_of_another_are_found():
    made, lefts, w = pushed(3, chain=False)
    assert oracle.count(compare_products([[made.results[i]] for i in (0, 2, 1)], lefts, w, chain=False))[1] > 1000
    made.results[1][7, 8] += 1
    assert oracle.count(compare_products([[y] for y in made.results], lefts, w, chain=False)) == (3 * 33 * 33, 1)


def test_factors_can_be_multiplied_for_ever():
    x, w = factors(70, 20, CPU, seed=0)
    assert (x.shape, w.shape, x.ctx) == ((70, 20), (20, 20), CPU)
    y = x
    for _ in range(500):
        y = np.dot(y, w)
    assert 0.0 < float(y.min()) <= float(y.max()) <= 1.0 + 1e-3

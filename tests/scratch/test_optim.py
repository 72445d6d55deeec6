from __future__ import annotations

import numpy as onp

from mxdp.backend import mx, np
from mxdp.scratch import get_params, sgd


def test_steps_in_place_against_the_gradient_over_the_whole_batch():
    params = get_params([np.array([1.0, 2.0]), np.array([[4.0]])], mx.cpu(1))
    params[0].grad[:] = np.array([8.0, -4.0])
    same = params[0]
    sgd(params, lr=0.5, batch_size=4)
    assert params[0] is same
    onp.testing.assert_array_equal(same.asnumpy(), [0.0, 2.5])
    assert params[1].item() == 4.0


def test_the_gradient_stays_as_it_is():
    (param,) = get_params([np.array([1.0])], mx.cpu(0))
    param.grad[:] = 3
    sgd([param], 0.1, 2)
    assert param.grad.item() == 3.0

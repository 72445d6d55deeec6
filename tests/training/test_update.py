"""SGD's prepared calls: which there are, and how long they are kept. (That they update right: any_training.)"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import cpus, replicas_on

from mxdp.backend import np
from mxdp.collectives import GradientSync
from mxdp.training import update
from mxdp.training.update import KEPT, ROOM, Update, prepare_update

SMALL, LARGE = (1 << 14) - 1, 1 << 14


@settings(max_examples=20)
@given(
    sizes=st.lists(st.sampled_from([1, 5, SMALL, LARGE, LARGE + 1]), min_size=1, max_size=4),
    more=st.sampled_from([0, ROOM - 2, ROOM, 2 * ROOM]),
    kind=st.sampled_from(["float32", "float64"]),
    momentum=st.sampled_from([0.0, 0.5]),
)
def test_large_arrays_are_updated_by_a_call_alone_and_small_ones_together(sizes, more, kind, momentum):
    """At most ``ROOM`` by one call. In double precision each is alone, in operators of NumPy's."""
    sizes = [*sizes, *[2] * more]
    params = [np.ones(size, dtype=kind) for size in sizes]
    gradients = [np.ones_like(param) for param in params]
    momenta = [2 * gradient for gradient in gradients] if momentum else ()
    made = []
    with pytest.MonkeyPatch.context() as patched:
        real = update.prepare
        patched.setattr(
            update, "prepare", lambda name, *a, **more: (made.append((name, more)), real(name, *a, **more))[1]
        )
        call = prepare_update(params, 0.5, gradients, momenta, momentum)
    call()
    assert all((param.asnumpy() == 0.5 + momentum * 2).all() for param in params)
    large = sum(size >= LARGE for size in sizes)
    together = [min(ROOM, len(sizes) - large - start) for start in range(0, len(sizes) - large, ROOM)]
    name = "sgd_mom_update" if momentum else "sgd_update"
    if kind == "float64":
        each = 4 if momentum else 2
        assert len(made) == each * len(sizes)
    else:
        assert [called for called, _ in made] == [name] * large + [f"multi_{name}"] * len(together)
        assert [more["num_weights"] for _, more in made[large:]] == together


def test_the_calls_for_the_last_batch_sizes_are_kept(monkeypatch):
    made = []
    monkeypatch.setattr(update, "prepare_update", lambda params, lr, *more: made.append(lr) or (lambda: None))
    replicas = replicas_on(cpus(2))
    step = Update(GradientSync(replicas), 1.0)
    for samples in [*range(1, KEPT + 1), 1, KEPT + 1, 1, 3, 2, 3]:
        step(samples)
    assert made == [1 / samples for samples in [*range(1, KEPT + 1), KEPT + 1, 2] for _ in replicas]

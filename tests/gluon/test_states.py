"""The states of an optimiser as bytes: each goes to the parameter of its name; what is refused changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_training import assert_equal, backward, parameters, weights

from mxdp.backend import gluon, mx
from mxdp.errors import MxdpError
from mxdp.gluon import Trainer
from mxdp.gluon.states import from_bytes, to_bytes
from mxdp.gluon.updater import Updater


@settings(max_examples=20)
@given(st.permutations(range(12)), st.sets(st.integers(0, 11)), st.booleans())
def test_each_state_and_count_goes_to_the_parameter_of_its_name(order, updated, named):
    """By MXNet's own files, without names, by its number."""
    params = parameters(1, [(number + 1,) for number in range(12)])
    names = [param.name for param in params]
    optimizer = mx.optimizer.Adam()
    its = Updater(optimizer)
    optimizer._set_current_context(0)
    for number in updated:
        optimizer._update_count([number] * (number + 1))
        its.states[number] = its.made_for(number, params[number].data())
    saved = to_bytes(its.states, optimizer, names) if named else mx_bytes(its)
    now = [params[number] for number in order] if named else params
    states, loaded = from_bytes(saved, mx.optimizer.SGD(), [param.name for param in now], now)
    assert type(loaded) is mx.optimizer.Adam
    assert {now[number].name for number in states} == {names[number] for number in updated}
    for number, state in states.items():
        assert [array.shape for array in state] == [now[number].shape] * 2
        assert loaded._all_index_update_counts[0][number] == now[number].shape[0]
    again, _ = from_bytes(to_bytes(states, loaded, [param.name for param in now]), loaded, names, params)
    assert set(again) == updated


def mx_bytes(updater):
    return mx.optimizer.Updater.get_states(updater, dump_optimizer=True)


@pytest.mark.parametrize("shard", [False, True], ids=["plain", "shards"])
def test_states_that_are_refused_change_nothing(shard, tmp_path):
    file = str(tmp_path / "states")

    def begun(shapes, *optimizer, **options):
        params = parameters(2, shapes)
        trainer = Trainer(params, *optimizer, **options)
        backward(params)
        trainer.step(4)
        return params, trainer

    begun([(3,)], "sgd", {"learning_rate": 1.0})[1].save_states(file)
    begun([(4,), (2,)], "adam")[1].save_states(f"{file}-other")
    begun([(4,)], "adam")[1].save_states(f"{file}-shape")
    (tmp_path / "states-damaged").write_bytes(b"damaged")
    gluons = gluon.Trainer(parameters(1, [(3,)] * 2), "adam")
    backward(gluons._params)
    gluons.step(4)
    gluons.save_states(f"{file}-gluon")
    params, trainer = begun([(3,)], "adam", shard_optimizer=shard)
    expected, other = begun([(3,)], "adam")
    for end, problem in {
        "-damaged": "these are no states of a trainer",
        "-other": "of another network, whose parameter p1 isn't here",
        "-shape": r"of another network: one of shape \(4,\) is for p0 of shape \(3,\)",
        "-gluon": "of another network: they are for 2 parameters, and this trainer has 1",
        **({"": "SGD as it is here has none"} if shard else {}),
    }.items():
        with pytest.raises(ValueError, match=problem):
            trainer.load_states(file + end)
    with pytest.raises(OSError, match="missing"):
        trainer.load_states(f"{file}-missing")
    backward(params, 1)
    trainer.step(4)
    backward(expected, 1)
    other.step(4)
    assert_equal(weights(params), weights(expected))
    trainer._optimizer.lr_scheduler = lambda count: 1.0
    with pytest.raises(MxdpError, match=r"the optimiser can't be saved \(.*lambda.*\): it and its learning rate"):
        trainer.save_states(f"{file}-unsaved")
    assert not (tmp_path / "states-unsaved").exists()

"""The states of a trainer's optimiser as bytes: MXNet's pickle, in which each state belongs to a parameter's name.

MXNet keeps states by a parameter's number in the trainer's list, which gluon sorts by name. A name holds a count of
layers, so the same network made once more may have another order::

    made first    dense0 .. dense11     sorted: dense0, dense1, dense10, dense11, dense2 ...
    made again    dense12 .. dense23    sorted: dense12, dense13, dense14 ...

So the optimiser takes a list of names along. Each state goes to the parameter of its name. gluon's own files have no
such list: there the number of parameters and their shapes are compared.
"""

from __future__ import annotations

import pickle
from typing import Any, Dict, Mapping, Sequence, Tuple

from mxdp.backend import mx
from mxdp.errors import MxdpError, plural
from mxdp.gluon.updater import State, leaves

NAMES = "mxdp_names"
"""The optimiser's attribute with the names of its parameters, in the order of their numbers."""


def to_bytes(states: Mapping[Any, State], optimizer: Any, names: Sequence[str]) -> bytes:
    """The pickle that MXNet's updaters read, too. Raises an MxdpError if Python can't pickle optimiser or schedule."""
    setattr(optimizer, NAMES, list(names))
    try:
        return pickle.dumps((dict(states), optimizer))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise MxdpError(
            f"the optimiser can't be saved ({error}): it and its learning rate scheduler must be of classes that stand "
            "at the top of a module"
        ) from error


def from_bytes(
    saved: bytes, optimizer: Any, names: Sequence[str], params: Sequence[Any]
) -> Tuple[Dict[int, State], Any]:
    """The states by today's numbers, and the optimiser; ``optimizer`` where it was not saved. It runs what the pickle
    holds. Raises a ValueError if these are no states, or those of another network."""
    try:
        states = pickle.loads(saved)
        if isinstance(states, tuple):
            states, optimizer = states
        states = dict(states.items())
    except Exception as error:  # a pickle may raise any
        raise ValueError(
            f"these are no states of a trainer ({type(error).__name__}: {error})"
        ) from error
    known = getattr(optimizer, NAMES, None)
    if known is None:
        _check_count(states, params)
    else:
        states = _renumbered(states, optimizer, known, names)
    _check_shapes(states, optimizer, params)
    return states, optimizer


def _renumbered(
    states: Dict[int, State], optimizer: Any, known: Sequence[str], names: Sequence[str]
) -> Dict[int, State]:
    """The states, and in place the optimiser's counts of updates, by the numbers of these ``names``."""
    if sorted(known) != sorted(names):
        gone = sorted(set(known) - set(names))
        new = sorted(set(names) - set(known))
        what = f"{gone[0]} isn't here" if gone else f"{new[0]} isn't there"
        raise ValueError(f"these states are of another network, whose parameter {what}")
    places = {name: number for number, name in enumerate(names)}
    now = {number: places[name] for number, name in enumerate(known)}
    for counts in optimizer._all_index_update_counts.values():
        counted = {now.get(number, number): count for number, count in counts.items()}
        counts.clear()
        counts.update(counted)
    setattr(optimizer, NAMES, list(names))
    return {now.get(number, number): state for number, state in states.items()}


def _check_count(states: Mapping[int, State], params: Sequence[Any]) -> None:
    # gluon keeps no state of a parameter that was not used or frozen, so there may be fewer.
    if not set(states) <= set(range(len(params))):
        raise ValueError(
            f"these states are of another network: they are for {plural(len(states), 'parameter')}, and this trainer "
            f"has {len(params)}"
        )


def _check_shapes(states: Mapping[int, State], optimizer: Any, params: Sequence[Any]) -> None:
    for number, state in states.items():
        param = params[number]
        weight = mx.nd.zeros(param.shape, dtype=param.dtype)
        example = optimizer.create_state_multi_precision(number, weight)
        allowed = {param.shape, *(array.shape for array in leaves(example))}
        for array in leaves(state):
            if array.shape not in allowed:
                raise ValueError(
                    f"these states are of another network: one of shape {array.shape} is for {param.name} of shape "
                    f"{param.shape}"
                )

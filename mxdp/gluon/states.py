"""An optimiser's states as they are saved: by number of the parameter, on the host."""

from __future__ import annotations

import pickle
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from mxdp.backend import NDArray
from mxdp.errors import MxdpError

State = Any
"""What an optimiser holds for a parameter: None, an array, or a tuple or list of states."""


def to_bytes(states: Mapping[Any, State], optimizer: Any) -> bytes:
    """The pickle that MXNet's updaters read.

    Raises:
        MxdpError: Python can't pickle the optimiser or its schedule.
    """
    try:
        return pickle.dumps((states, optimizer))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise MxdpError(
            f"the optimiser can't be saved ({error}): it and its learning rate scheduler must be of classes that stand "
            "at the top of a module"
        ) from error


def from_bytes(saved: bytes, optimizer: Any) -> Tuple[Dict[Any, State], Any]:
    """The states, and the optimiser; ``optimizer`` where it was not saved. It runs what the pickle holds.

    Raises:
        ValueError: these are no states.
    """
    try:
        content = pickle.loads(saved)
        states, optimizer = content if isinstance(content, tuple) else (content, optimizer)
        return dict(states.items()), optimizer
    except Exception as error:  # a pickle may raise any
        raise ValueError(f"these are no states of a trainer ({type(error).__name__}: {error})") from error


def check_shapes(states: Mapping[int, State], params: Sequence[Any]) -> None:
    """Raise a ValueError unless each array of a parameter's state has the parameter's shape, so that it can be cut."""
    for number, state in states.items():
        shape = params[number].shape if number in range(len(params)) else None
        wrong = [array.shape for array in leaves(state) if array.shape != shape]
        if wrong:
            whose = f"{params[number].name} of shape {shape}" if shape else f"a parameter {number}, which isn't here"
            raise ValueError(f"these states are of another network: one of shape {wrong[0]} is for {whose}")


def leaves(state: State) -> List[NDArray]:
    """The arrays of a state."""
    arrays: List[NDArray] = []
    mapped(state, arrays.append)
    return arrays


def mapped(state: State, change: Callable[[Any], Any]) -> State:
    """The same structure, with each array changed."""
    if isinstance(state, (tuple, list)):
        return type(state)(mapped(part, change) for part in state)
    return None if state is None else change(state)

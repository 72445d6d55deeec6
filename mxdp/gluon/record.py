"""What decides a trainer's update, as values that ranks compare. With equal sums alone, replicas may part."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

import numpy as onp

from mxdp.processes.order import without_counts


def settings(optimizer: Any) -> Dict[str, Any]:
    """The settings of an optimiser and of its scheduler that are numbers or texts."""
    scheduler = optimizer.lr_scheduler
    found = {"optimizer": type(optimizer).__name__}
    for name, value in vars(optimizer).items():
        found["learning_rate" if name == "lr" else name] = value
    found["lr_scheduler"] = type(scheduler).__name__
    for name, value in vars(scheduler).items() if scheduler else ():
        found[f"lr_scheduler.{name}"] = value
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, (bool, int, float, str)) and not name.startswith("_")
    }


def of_parameters(params: Sequence[Any]) -> Dict[str, Any]:
    """What the parameters are, by names that are the same on all ranks."""
    found: Dict[str, Any] = {}
    for name, param in zip(unique_names(params), params):
        found[name] = f"{onp.dtype(param.dtype)} {param.shape}, grad_req {param.grad_req!r}"
    return found


def of_update(optimizer: Any, params: Sequence[Any]) -> Dict[str, Any]:
    """All that the next update depends on, but parameters and gradients."""
    found = settings(optimizer)
    found.pop("rescale_grad", None)  # the batch size, which says more
    counts = optimizer._index_update_count
    found["the parameters' counts of updates"] = [counts.get(number, 0) for number in range(len(params))]
    for factor in ("lr_mult", "wd_mult"):
        values: List[float] = [getattr(param, factor) for param in params]
        if set(values) != {1.0}:
            found[f"the parameters' {factor}"] = values
    return found


def unique_names(params: Sequence[Any]) -> List[str]:
    """gluon's names without its counts of layers, which differ between processes and runs; else numbers."""
    names = without_counts([param.name for param in params])
    return names if len(set(names)) == len(names) else [f"parameter {number}" for number in range(len(params))]

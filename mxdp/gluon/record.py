"""What decides a trainer's update, as values that ranks compare. With equal sums alone, replicas may part."""

from __future__ import annotations

import warnings
import zlib
from typing import Any, Dict, List, Mapping, Sequence

import numpy as onp

from mxdp.collectives.buckets import Buckets
from mxdp.collectives.checksums import Checksums
from mxdp.errors import plural
from mxdp.process import MxdpWarning
from mxdp.processes import World
from mxdp.processes.order import without_counts
from mxdp.processes.world import Note


def settings(optimizer: Any) -> Dict[str, Any]:
    """The settings of an optimiser and of its scheduler that are numbers or texts."""
    scheduler = optimizer.lr_scheduler
    found = {"optimizer": type(optimizer).__name__}
    for name, value in vars(optimizer).items():
        found["learning_rate" if name == "lr" else name] = value
    found["lr_scheduler"] = type(scheduler).__name__
    if scheduler:
        for name, value in vars(scheduler).items():
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
    found["the parameters' counts of updates"] = [counts.get(n, 0) for n in range(len(params))]
    for factor in ("lr_mult", "wd_mult"):
        values: List[float] = [getattr(param, factor) for param in params]
        if set(values) != {1.0}:
            found[f"the parameters' {factor}"] = values
    return found


def sum_and_compare(
    world: World, buckets: Buckets, checksums: Checksums, record: Mapping[str, Any], used: bytes
) -> List[bytes]:
    """Sum over ranks, and compare what decides their updates. Waits for the first bucket.

    With it travel, from each rank, a checksum of ``record``, ``used``, and the ``checksums`` of parameters. Returns
    these two of each rank. Raises an MxdpError, on every rank, if the records differ.
    """
    checksums.push()
    digest = zlib.crc32(repr(record).encode()).to_bytes(4, "little")
    note = Note(digest + used, checksums.arrays)
    buckets.sum(note)
    theirs = world.gather(note.told()) if note.carrier is None else note.wait()
    if len({of_rank[:4] for of_rank in theirs}) > 1:
        world.agree(record)
    return [of_rank[4:] for of_rank in theirs]


def give_rank_0s(world: World, params: Sequence[Any]) -> None:
    """Make these parameters equal again, which somebody has changed on a rank."""
    for param in params:
        first, *others = param._data
        world.broadcast([first])
        for data in others:
            first.copyto(data)
    if params and world.rank == 0:
        what = f"{plural(len(params), 'parameter')} ({params[0].name})"
        warnings.warn(
            f"the ranks had other values of {what}: all have rank 0's now", MxdpWarning, 5
        )


def unique_names(params: Sequence[Any]) -> List[str]:
    """gluon's names without its counts of layers, which differ between processes and runs; else numbers."""
    names = without_counts([param.name for param in params])
    if len(set(names)) == len(names):
        return names
    return [f"parameter {number}" for number in range(len(params))]

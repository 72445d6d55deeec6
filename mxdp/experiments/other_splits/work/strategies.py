"""Trains a network that is split as the case says."""

from __future__ import annotations

from typing import Any, Iterator, Tuple

from mxdp.experiments.harness.experiment import Case, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.experiments.other_splits.strategies import MICRO_BATCHES
from mxdp.experiments.other_splits.work.split import SplitNet, network, set_up_steps

ODD = 13
"""Samples that the oracle compares: a prime, so that shards and micro-batches are uneven."""


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Three steps."""
    return _split(case, settings).compare(ODD)


def set_up(case: Case, settings: Settings) -> Work:
    """A round is some steps."""
    return set_up_steps(_split(case, settings), case.settings["batch"], settings["steps"])


def _split(case: Case, settings: Settings) -> SplitNet:
    own = case.settings
    pipeline = {"micro_batches": MICRO_BATCHES, "schedule": "gpipe", "batch_size": own["batch"]}
    options = pipeline if own["strategy"].endswith("pipeline") else {}
    net, shape = network(own["net"], settings["units"])
    return SplitNet(own["strategy"], net, shape, devices_of(case, settings), settings["seed"], options)

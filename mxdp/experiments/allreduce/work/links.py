"""Copies arrays between devices, one size after the other."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Iterator, Tuple

from mxdp.collectives.calibration import calibrate
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.experiments.measure.links import Copies


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Every size."""
    for nbytes in settings["sizes"]:
        yield from _copies(case, settings, nbytes).compare()


def set_up(case: Case, settings: Settings) -> Work:
    """A round times a copy of each size; its seconds are those of the largest."""
    found, pairs, sizes = devices_of(case, settings), case.settings["pairs"], sorted(settings["sizes"])
    last = {"machine": asdict(calibrate(found))} if len(pairs) > 1 else {}
    _copies(case, settings, sizes[0]).seconds()

    def one_round() -> Round:
        times = {str(nbytes): _copies(case, settings, nbytes).seconds() for nbytes in sizes}
        return Round(times[str(sizes[-1])], {"seconds_by_bytes": times}, last)

    return Work([found[rank] for rank in sorted({rank for pair in pairs for rank in pair})], one_round)


def _copies(case: Case, settings: Settings, nbytes: int) -> Copies:
    """The case's copies of that size, on fresh arrays."""
    found = devices_of(case, settings)
    return Copies([(found[i], found[j]) for i, j in case.settings["pairs"]], nbytes, settings["seed"])

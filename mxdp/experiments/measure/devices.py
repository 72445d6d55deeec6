"""The devices that a case runs on."""

from __future__ import annotations

from typing import List

from mxdp.backend import Device, devices
from mxdp.experiments.harness.experiment import Case, Settings

WARM_UP = 20
"""Steps of training before a clock starts: until then MXNet finds its memory, and Linux its pages. Where a process
measures one round, all of that would be in it."""


def devices_of(case: Case, settings: Settings) -> List[Device]:
    """The devices of this process of ``case``, of the same kind in all cases of an experiment.

    With ``kind="auto"`` on a machine with one GPU, ``devices(1)`` is that GPU and ``devices(2)`` are two CPU contexts,
    which can't be compared. So the largest case decides for all. The processes of one case get one device each.
    """
    found = devices(max(*settings["devices"], case.devices, case.processes), settings["kind"])
    return [found[case.process]] if case.processes > 1 else found[: case.devices]

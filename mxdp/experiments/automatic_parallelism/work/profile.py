"""Runs the cases of another experiment, and records their rounds."""

from __future__ import annotations

from typing import Any, Iterable, List, Tuple

from mxdp.errors import TraceError, UsageError
from mxdp.experiments.automatic_parallelism.profile import recorded_experiment
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure import child
from mxdp.experiments.measure.timelines import recorded


def oracle(case: Case, settings: Settings) -> Iterable[Tuple[Any, ...]]:
    """The other experiment's."""
    other, its = recorded_experiment(settings)
    return other.oracle(case, its)


def set_up(case: Case, settings: Settings) -> Work:
    """A round does two of the other experiment's: one plain, then one recorded, whose time counts."""
    other, its = recorded_experiment(settings)
    work = other.set_up(case, its)

    def one_round() -> Round:
        plain = child.one_round(work)
        done: List[Round] = []
        try:
            timeline = recorded(lambda: done.append(child.one_round(work)), work.devices)
        except TraceError as error:
            raise UsageError(f"{settings['of']} records its own rounds: run it by itself") from error
        if not timeline:
            raise UsageError(f"MXNet's profiler can't follow {len(work.devices)} CPU devices on this machine")
        seconds = done[0].seconds
        return Round(seconds, {"cost": seconds / plain.seconds}, timeline)

    return Work(work.devices, one_round, case=work.case, shared=work.shared)

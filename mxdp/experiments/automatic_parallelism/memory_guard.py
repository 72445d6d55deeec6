"""Does the job fit? The notebook of the book's section died on its card of 4 GB, over 50 results of 64 MB each.

What a job needs can be added up before it starts: its arrays, at the worst moment. What there is can be asked for. So a
job that doesn't fit need not die halfway: it is refused with both numbers, or cut into slices that fit. The model is
that sum, and is off by what it leaves out: MXNet's own notes, a few MB at most, and workspaces, which these operators
don't have.
"""

from __future__ import annotations

import itertools
import statistics
from functools import partial
from typing import TYPE_CHECKING, Any, Iterator, List, Tuple

from mxdp.errors import MemoryShortage
from mxdp.experiments.automatic_parallelism.big_results import BigResults, at_most
from mxdp.experiments.harness.experiment import (
    Case,
    Column,
    Experiment,
    Oracle,
    Ready,
    Result,
    Round,
    Row,
    Settings,
    Verdict,
    experiment,
)
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pieces = List[Tuple[int, int]]

MB = 1e6
OFF = 0.1
"""How far off the prediction may be."""
SLACK = 32 << 20
"""Bytes that Python and MXNet may take for themselves beside the job, where the system enforces the limit."""
LABELS = {"fits": "no limit", "refused": "refused", "sliced": "in slices"}
UNGUARDED = "no guard"


@experiment
class MemoryGuard(Experiment):
    """A job of known size: where it fits, where it is refused, where it is cut, and where nobody asks."""

    name = "memory-guard"
    question = "Is the memory that a job will need known before it starts?"
    source = "Dive into Deep Learning, 'Automatic Parallelism': the notebook's out-of-memory stop"
    how_to_read = (
        "'Needs' is the predicted peak, 'measured' how much the process grew at its worst moment (on a GPU: what MXNet "
        "had there), both beyond what it had before, the median over the rounds. 'At once' are the results that there "
        "are at a time. The reference runs into the same limit, set by the system, without having asked."
    )
    presets = {
        "quick": dict(
            devices=[1], kind="auto", seed=0, rounds=5, timeout=120.0, size=1000, products=50, limit_bytes=64_000_000
        ),
        "full": dict(
            devices=[1], kind="auto", seed=0, rounds=5, timeout=1800.0, size=4000, products=50,
            limit_bytes=1_000_000_000,
        ),
    }  # fmt: skip

    def cases(self, settings: Settings) -> List[Case]:
        cases = [Case(label, settings={"way": way}) for way, label in LABELS.items()]
        return [*cases, Case(UNGUARDED, settings={"way": "unguarded"}, reference=True)]

    def predict(self, settings: Settings, cores: int) -> str:
        job, limit = _job(settings), settings["limit_bytes"]
        most = max(0, (limit - job.fixed_bytes) // job.result_bytes)
        return (
            f"{job.products} results of {job.result_bytes / MB:.1f} MB and their factors: "
            f"{job.needed(job.products) / MB:.0f} MB. Of a limit of {limit / MB:.0f} MB, at most {most} at a time."
        )

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        from mxdp.experiments.measure.oracle import count_wrong

        job, device, seed = BigResults(size=129, products=11), _device(case, settings), settings["seed"]
        limit = job.needed(3)
        missed = 0
        if case.settings["way"] == "sliced":
            pieces = job.pieces(device, limit, cut=True)
            missed = int(max(stop - start for start, stop in pieces) != 3)
        else:
            if case.settings["way"] == "refused":
                missed = int(not job.refused(device, job.needed(11) - 1))
            pieces = job.pieces(device, job.needed(11), cut=False)
        checked, wrong = count_wrong(job.run(device, seed, pieces), job.serial(seed), 0.0)
        return Oracle(checked + 1, wrong + missed, "row sums against NumPy's, exactly; and the guard's own answer")

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp.experiments.measure.memory import taken
        from mxdp.experiments.measure.timelines import recorded
        from mxdp.timing import Timer

        job, device, way = _job(settings), _device(case, settings), case.settings["way"]
        limit: Any = None if way == "fits" else settings["limit_bytes"]
        job.run(device, settings["seed"], [(0, 2)])
        yield Ready([str(device)])
        timer = Timer()
        peaks: List[int] = []
        pieces: Pieces = []
        said = ""

        def attempt() -> None:
            nonlocal pieces, said
            with timer:
                pieces, said = _attempt(job, device, settings["seed"], way, limit)

        for number in itertools.count(1):
            peaks.append(taken(attempt, device))
            at_once = max((stop - start for start, stop in pieces), default=0)
            predicted = job.needed(at_once or job.products)
            sizes = {"predicted_bytes": predicted, "measured_bytes": statistics.median(peaks)}
            last = number == settings["rounds"] and way == "sliced" and at_once
            timeline = recorded(partial(job.run, device, settings["seed"], pieces), [device]) if last else {}
            yield Round(timer.times[-1], {**timeline, **sizes, "at_once": at_once, "said": said})

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            metrics = row["metrics"]
            if metrics["at_once"]:
                metrics["off"] = metrics["measured_bytes"] / metrics["predicted_bytes"] - 1

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        fits, refused, sliced = (_metrics(rows, way) for way in LABELS)
        unguarded = _metrics(references, "unguarded")
        if not (fits["at_once"] and sliced["at_once"]):
            return Verdict(False, f"It could not be run: {fits['said'] or sliced['said']}")
        holds = (
            all(abs(metrics["off"]) <= OFF for metrics in (fits, sliced))
            and sliced["measured_bytes"] <= settings["limit_bytes"]
            and not refused["at_once"]
            and refused["measured_bytes"] < _job(settings).result_bytes
        )
        end = f"fails with {unguarded['said']!r}" if unguarded["said"] else "runs to its end here"
        text = (
            f"The job needs {_mb(fits['predicted_bytes'])}, and took {_mb(fits['measured_bytes'])} "
            f"({fits['off']:+.1%}). With {_mb(settings['limit_bytes'])} it runs {sliced['at_once']} results at a time: "
            f"{_mb(sliced['predicted_bytes'])} predicted, {_mb(sliced['measured_bytes'])} measured "
            f"({sliced['off']:+.1%}), equal results. Else it is refused: {refused['said'] or 'but it was not.'} "
            f"Under the same limit with nobody asking it takes {_mb(unguarded['measured_bytes'])} and {end}. So the "
            "notebook's stop (50 results of 64 MB, 3.2 GB, on a card of 4 GB that others use as well) could be known "
            f"before its first product. Asked for: within {OFF:.0%}."
        )
        return Verdict(holds, text)

    def columns(self) -> List[Column]:
        return [
            Column("needs MB", lambda row: f"{row['metrics']['predicted_bytes'] / MB:.1f}"),
            Column("measured MB", lambda row: f"{row['metrics']['measured_bytes'] / MB:.1f}"),
            metric("off", "off", "{:+.1%}"),
            Column("at once", lambda row: str(row["metrics"]["at_once"] or "none")),
            Column("ms", lambda row: style.number(row["seconds"]["median"] * 1e3)),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        rows = result["rows"] + result["references"]
        axes = figure.add_subplot()
        values = [round(row["metrics"]["measured_bytes"] / MB, 1) for row in rows]
        colours = [style.COLOURS[0 if row["metrics"]["at_once"] else 4] for row in rows]
        style.bars(axes, [row["label"] for row in rows], values, unit="MB", colours=colours)
        limit = result["settings"]["limit_bytes"] / MB
        for y, row in enumerate(rows):
            needs = row["metrics"]["predicted_bytes"] / MB
            axes.barh(y, needs, height=style.THICK, fill=False, edgecolor=style.INK, linestyle=":", linewidth=1.2)
            if row["case"]["way"] != "fits":
                axes.plot(
                    limit, y + 0.7 * style.THICK, "^", color=style.COLOURS[1], markersize=9, zorder=5, clip_on=False
                )
        axes.set_xlim(0, max([*values, *(row["metrics"]["predicted_bytes"] / MB for row in rows)]) * 1.3)
        axes.set_xlabel("MB measured (dotted: predicted; triangle: limit)")


def _job(settings: Settings) -> BigResults:
    return BigResults(settings["size"], settings["products"])


def _attempt(job: BigResults, device: Any, seed: int, way: str, limit: Any) -> Tuple[Pieces, str]:
    """The pieces in which it ran; or none, and why."""
    try:
        if way == "unguarded":
            pieces = [(0, job.products)]
            with at_most(limit + SLACK):
                job.run(device, seed, pieces)
        else:
            pieces = job.pieces(device, limit, cut=way == "sliced")
            job.run(device, seed, pieces)
    except MemoryShortage as shortage:
        return [], str(shortage)
    except _mxnet_error() as error:
        return [], str(error).strip().splitlines()[-1]
    return pieces, ""


def _device(case: Case, settings: Settings) -> Any:
    from mxdp.experiments.measure.devices import devices_of

    return devices_of(case, settings)[0]


def _mxnet_error() -> Any:
    from mxdp.backend import mx

    return mx.MXNetError


def _metrics(rows: List[Row], way: str) -> Any:
    row = find(rows, way=way)
    assert row is not None
    return row["metrics"]


def _mb(nbytes: int) -> str:
    return f"{nbytes / MB:.1f} MB"

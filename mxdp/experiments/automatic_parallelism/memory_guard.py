"""Does the job fit? The notebook of the book's section died on its card of 4 GB, over 50 results of 64 MB each.

The model adds up a job's arrays at the worst moment, before it starts. It leaves out MXNet's own bookkeeping, a few MB
at most, and workspaces, which these operators do not have. A job that needs more than the memory that is left need not
die halfway: it is refused with both numbers, or cut into slices that fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List

from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, Verdict, experiment
from mxdp.experiments.report import style

MB = 1e6
OFF = 0.1
"""How far the prediction may be off."""
INNER = 64
"""The short side of the factors. The slides' factors are square; here only the bytes of the results count."""
ITEM = 4
"""Bytes of a float32."""
LABELS = {"fits": "no limit", "refused": "refused", "sliced": "in slices"}


@dataclass(frozen=True)
class BigResults:
    """``products`` products of (size, 64) by (64, size); of each only the sums of its rows are kept."""

    size: int
    products: int

    @classmethod
    def of(cls, settings: Settings) -> BigResults:
        """The job of these settings."""
        return cls(settings["size"], settings["products"])

    @property
    def result_bytes(self) -> int:
        """One result, its row sums, and the factor made for it."""
        return (self.size * self.size + self.size + self.size * INNER) * ITEM

    @property
    def fixed_bytes(self) -> int:
        """The two factors that all results are made from."""
        return 2 * self.size * INNER * ITEM

    def needed(self, results: int) -> int:
        """Bytes at the worst moment, with ``results`` results at a time."""
        return self.fixed_bytes + results * self.result_bytes


@experiment
class MemoryGuard(Experiment):
    """A job of known size: run whole, refused, cut into slices, and started without asking."""

    name = "memory-guard"
    question = "Is the memory that a job will need known before it starts?"
    source = "Dive into Deep Learning, 'Automatic Parallelism': the notebook's out-of-memory stop"
    how_to_read = (
        "'Needs' is the predicted peak, 'measured' the growth of the process at its worst moment (on a GPU: what MXNet "
        "had there), the median over the rounds; both beyond what was there before. 'At once' is the number of results "
        "at a time. The reference runs into the same limit, set by the system, without having asked."
    )
    compared = "row sums against NumPy's, exactly; and the guard's own answer"
    common = dict(devices=[1], kind="auto", seed=0, rounds=5, products=50)
    presets = {
        "quick": dict(common, timeout=120.0, size=1000, limit_bytes=64_000_000),
        "full": dict(common, timeout=1800.0, size=4000, limit_bytes=1_000_000_000),
    }
    little = dict(size=64, products=2, limit_bytes=80000)

    def cases(self, settings: Settings) -> List[Case]:
        cases = [Case(label, settings={"way": way}) for way, label in LABELS.items()]
        return [*cases, Case("no guard", settings={"way": "unguarded"}, reference=True)]

    def predict(self, settings: Settings, cores: int) -> str:
        job, limit = BigResults.of(settings), settings["limit_bytes"]
        most = max(0, (limit - job.fixed_bytes) // job.result_bytes)
        return (
            f"{job.products} results of {job.result_bytes / MB:.1f} MB and their factors: "
            f"{job.needed(job.products) / MB:.0f} MB. Of a limit of {limit / MB:.0f} MB, at most {most} at a time."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            metrics = row["metrics"]
            if metrics["at_once"]:
                metrics["off"] = metrics["measured_bytes"] / metrics["predicted_bytes"] - 1

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        by_way = {row["case"]["way"]: row["metrics"] for row in rows + references}
        fits, refused, sliced, unguarded = (by_way[way] for way in (*LABELS, "unguarded"))
        if not (fits["at_once"] and sliced["at_once"]):
            return Verdict(False, f"It could not be run: {fits['said'] or sliced['said']}")
        holds = (
            all(abs(metrics["off"]) <= OFF for metrics in (fits, sliced))
            and sliced["measured_bytes"] <= settings["limit_bytes"]
            and not refused["at_once"]
            and refused["measured_bytes"] < BigResults.of(settings).result_bytes
        )
        end = f"fails with {unguarded['said']!r}" if unguarded["said"] else "runs to its end here"
        text = (
            f"The prediction is off by {fits['off']:+.1%} (asked for: within {OFF:.0%}): the job needs "
            f"{_mb(fits['predicted_bytes'])} and took {_mb(fits['measured_bytes'])}. With a limit of "
            f"{_mb(settings['limit_bytes'])} it runs in slices of "
            f"{sliced['at_once']} results: {_mb(sliced['predicted_bytes'])} predicted, "
            f"{_mb(sliced['measured_bytes'])} measured ({sliced['off']:+.1%}), equal results. Uncut it is refused: "
            f"{refused['said'] or 'but it was not.'} Under the same limit, without asking, it takes "
            f"{_mb(unguarded['measured_bytes'])} and {end}. So the notebook's stop (50 results of 64 MB, 3.2 GB, on a "
            "card of 4 GB that others use as well) could be known before its first product."
        )
        return Verdict(holds, text)

    def columns(self) -> List[Column]:
        return [
            Column("predicted_bytes", "needs MB", ".1f", 1 / MB),
            Column("measured_bytes", "measured MB", ".1f", 1 / MB),
            Column("off", "off", "+.1%"),
            Column("at_once", "at once"),
            Column("seconds", "ms", scale=1e3),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
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
                below = y + 0.7 * style.THICK
                axes.plot(limit, below, "^", color=style.COLOURS[1], markersize=9, zorder=5, clip_on=False)
        axes.set_xlim(0, max([*values, *(row["metrics"]["predicted_bytes"] / MB for row in rows)]) * 1.3)
        axes.set_xlabel("MB measured (dotted: predicted; triangle: limit)")


def _mb(nbytes: int) -> str:
    return f"{nbytes / MB:.1f} MB"

"""Does the job fit? The notebook of the book's section died on its card of 4 GB, over 50 results of 64 MB each.

The model adds up a job's arrays at the worst moment, before it starts. It leaves out MXNet's own bookkeeping, a few MB
at most, and workspaces, which these operators do not have. A job that needs more than the memory that is left need not
die halfway: it is refused with both numbers, or cut into slices that fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List

from mxdp.errors import size
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.report import style

MB = 1e6
INNER = 64
"""The short side of the factors. The slides' factors are square; here only the bytes of the results count."""
ITEM = 4
"""Bytes of a float32."""


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
        "had there), the median over the rounds; both beyond what was there before. 'Of needs' is their ratio. 'At "
        "once' is the number of results at a time. The reference starts without a guard; the system sets the limit. "
        "The notebook's 50 results of 64 MB need 3.2 GB, on a card of 4 GB that others use as well."
    )
    claims = {
        "most": Claim(
            "The job takes at most 1.1 times the memory that was predicted before its start, whole and in slices.",
            "ours",
            1.1,
        ),
        "of_needs": Claim(
            "The job takes at least 0.9 times the memory that was predicted, whole and in slices.",
            "ours",
            0.9,
            least=True,
        ),
        "of_limit": Claim("In slices the job takes at most 1 times its limit.", "ours", 1),
        "refused": Claim("Whole, the job is refused under the limit: it computes 0 results.", "ours", 0, exact=True),
        "of_result": Claim("The refused job allocates less than 1 result.", "ours", 1),
    }
    compared = "row sums against NumPy's, exactly; and the guard's own answer"
    common = dict(devices=[1], kind="auto", seed=0, products=50)
    presets = {
        "quick": dict(common, rounds=1, timeout=120.0, size=1000, limit_bytes=64_000_000),
        "full": dict(common, rounds=1, timeout=600.0, size=2000, limit_bytes=250_000_000),
    }
    little = dict(size=64, products=2, limit_bytes=80000)

    def cases(self, settings: Settings) -> List[Case]:
        labels = {"fits": "no limit", "refused": "refused", "sliced": "in slices"}
        cases = [Case(label, settings={"way": way}) for way, label in labels.items()]
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
            taken, way = row.rounds["measured_bytes"], row.case["way"]
            if way == "refused":
                result = BigResults.of(settings).result_bytes
                row.keep("of_result", [each / result for each in taken])
                row.rounds["refused"] = row.rounds["at_once"]
            else:
                row.keep("of_needs", [each / needs for each, needs in zip(taken, row.rounds["predicted_bytes"])])
                row.rounds["most"] = row.rounds["of_needs"]
            if way == "sliced":
                row.keep("of_limit", [each / settings["limit_bytes"] for each in taken])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        fits, _, sliced = rows
        if not (fits.metrics["at_once"] and sliced.metrics["at_once"]):
            return f"The job could not be run: {fits.metrics['said'] or sliced.metrics['said']}"
        return (
            f"A job of {settings['products']} products takes {fits.estimate('of_needs'):.3f} times the memory that was "
            f"predicted before its start; cut into slices that fit, {sliced.estimate('of_needs'):.3f} times."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        refused, unguarded = rows[1].metrics, references[0].metrics
        start = f"refused: {refused['said']}" if refused["said"] else "not refused."
        end = f"fails with {unguarded['said']!r}" if unguarded["said"] else "runs to its end"
        return (
            f"Under a limit of {size(settings['limit_bytes'])} the whole job is {start} Without a guard it takes "
            f"{unguarded['measured_bytes'] / MB:.0f} MB under that limit and {end}."
        )

    def columns(self) -> List[Column]:
        return [
            Column("predicted_bytes", "needs MB", ".1f", 1 / MB),
            Column("measured_bytes", "measured MB", ".1f", 1 / MB),
            Column("of_needs", "of needs", ".3f", spread=True),
            Column("at_once", "at once"),
            Column("seconds", "ms", scale=1e3),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        rows = result["rows"] + result["references"]
        axes = figure.add_subplot()
        values = [round(row.metrics["measured_bytes"] / MB, 1) for row in rows]
        colours = [style.COLOURS[0 if row.metrics["at_once"] else 4] for row in rows]
        style.bars(axes, [row.label for row in rows], values, unit="MB", colours=colours)
        limit = result["settings"]["limit_bytes"] / MB
        for y, row in enumerate(rows):
            needs = row.metrics["predicted_bytes"] / MB
            axes.barh(y, needs, height=style.THICK, fill=False, edgecolor=style.INK, linestyle=":", linewidth=1.2)
            if row.case["way"] != "fits":
                below = y + 0.7 * style.THICK
                axes.plot(limit, below, "^", color=style.COLOURS[1], markersize=9, zorder=5, clip_on=False)
        axes.set_ylim(len(rows) - 0.5, -0.7)
        axes.set_xlim(0, max([*values, *(row.metrics["predicted_bytes"] / MB for row in rows)]) * 1.3)
        axes.set_xlabel("MB measured (dotted: predicted; triangle: limit)")

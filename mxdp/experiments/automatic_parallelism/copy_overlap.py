"""Compute, and copy the results away: does it help not to wait between the two?

The slides run 50 products, copy the 50 results to the CPU, and then do both without a wait between. They say
"Overlapping shaves real time", but their own numbers say that both take *longer* than one after the other.

The cost model: what overlaps takes the longer of the two times, what doesn't takes their sum. A CPU device's workers
also copy its results, and their queue is first in, first out::

    one worker                  p1 p2 p3 c1 c2 c3    the sum, in whatever order they are pushed
    two workers, independent    p1 p3 c1 c3          the products fill both workers, and the copies come after them:
                                p2 .. c2             nothing is left to hide behind
    two workers, chain          p1 p2 p3             a product waits for the one before: one worker is free,
                                   c1 c2 c3          and a copy hides behind the next product

On a CPU one copy is short beside a product. So each result is copied until copying takes as long as the product: then
overlapping saves the most, half of the sum.

On a GPU, copies have a thread and a stream of their own, but copies to pageable memory, as in the slides, are
synchronous. In stock settings a copy goes into memory fresh from the system, which makes it slower here.
"""

from __future__ import annotations

from typing import List

from mxdp import process
from mxdp.errors import plural
from mxdp.experiments.automatic_parallelism import slides
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.environments import STOCK, workers
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, one_way
from mxdp.experiments.report import style

CLAIM, BALANCE = 0.75, 0.75
"""Both take at most CLAIM of the sum of their times; the shorter takes at least BALANCE of the longer, or there is
little to hide. Both are ours."""
SLIDES, INDEPENDENT, CHAIN = "slides", "indep.", "chain"
ENVIRONMENTS = {"stock": (1, STOCK), "1 worker": (1, workers(1)), "2 workers": (2, workers(2))}


@experiment
class CopyOverlap(Experiment):
    """The slides' products and copies, and two kinds that take equally long, in three environments."""

    name = "copy-overlap"
    question = "Can results be copied away while the next are computed?"
    source = "Dive into Deep Learning, 'Automatic Parallelism'"
    how_to_read = (
        "In ms, run: the products alone; copy: the copies of their results; both: with no wait between. '/longer' is "
        "both over the longer of the two (1: the other is hidden), '/sum' both over their sum (1: nothing is hidden, "
        "0.5: all that can be), 'exp.' the '/sum' expected from the rates measured at set-up, 'beside' the share of a "
        "timeline in which products and copies run at the same time. slides: independent products of square matrices, "
        "each result copied once; indep.: products of tall matrices, each result copied ('copies' times) until copying "
        "takes as long as the product; chain: the same, but each product needs the one before. stock: MXNet's own "
        "settings."
    )
    claims = {
        "chain_over_sum": Claim(
            "On a device with a free worker copies hide beside products: a chain of products and the copies of its "
            f"results take at most {CLAIM} of the sum of their times.",
            "the slides say 'Overlapping shaves real time'; the work and the bound (half of what can hide) are ours",
            CLAIM,
        ),
        "chain_alike": Claim(
            f"In that chain there is something to hide: the shorter of the two takes at least {BALANCE} of the longer.",
            "ours",
            BALANCE,
            least=True,
        ),
    }
    compared = "products, and every copy of them, against NumPy's products, exactly"
    together = True
    # Without a size, products are scaled to the machine, by the rate of small ones: all take `run_seconds`.
    # The slides' own work (`size = 4000` in a preset) is hours on a CPU.
    common = dict(kind="auto", seed=0, products=slides.PRODUCTS)
    presets = {
        "quick": dict(common, rounds=1, timeout=120.0, size=None, run_seconds=0.08, nbytes=1 << 22),
        "full": dict(common, rounds=1, timeout=600.0, size=512, run_seconds=0.1, nbytes=8_000_000),
    }
    little = dict(size=64, products=2, run_seconds=0.001, nbytes=65536)

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(f"{work}, {engine}", 1, 1, {"work": work, "engine": engine, "workers": count}, environment)
            for work in (SLIDES, INDEPENDENT, CHAIN)
            for engine, (count, environment) in ENVIRONMENTS.items()
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        return (
            f"On {plural(cores, 'core')} and two workers, a chain of products and copies that take equally long take "
            f"{expected_over_sum(settings['products'], 1.0, 1.0) if cores > 1 else 1.0:.2f} of the sum of their times. "
            "Independent products, or one worker, take the sum. The slides' single copies are short beside products on "
            "a CPU, so there is little to hide."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            case = row.case
            hides = case["work"] == CHAIN and min(case["workers"], process.cores()) > 1
            copying = case["copies"] * case["copy_seconds"]
            over = expected_over_sum(case["products"], case["product_seconds"], copying) if hides else 1.0
            row.metrics["expected_over_sum"] = over
        chain = find(rows, work=CHAIN, engine="2 workers")
        if chain:
            alone = zip(chain.rounds["run_seconds"], chain.rounds["copy_seconds"])
            chain.keep("chain_over_sum", chain.rounds["overlapped_over_sum"])
            chain.keep("chain_alike", [1 / each for each in one_way([run / copy for run, copy in alone])])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        found = {(row.case["work"], row.case["engine"]): row for row in rows}
        two, one = (found[CHAIN, engine].estimate("overlapped_over_sum") for engine in ("2 workers", "1 worker"))
        return (
            f"With two workers on a device, a chain of products and its copies take {two:.2f} of the sum of their "
            f"times; with one worker, {one:.2f}."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        found = {(row.case["work"], row.case["engine"]): row for row in rows}
        own = found[SLIDES, "1 worker"]
        size = slides.size_in_words(own.case["products"], own.case["width"], own.case, settings)
        return (
            "Independent products fill both workers before the first copy can start: they and their copies take "
            f"{found[INDEPENDENT, '2 workers'].estimate('overlapped_over_sum'):.2f} of the sum. In the slides' own "
            f"work, {size}, copies are {own.metrics['copy_seconds'] / own.metrics['in_turn_seconds']:.1%} of the sum. "
            "On a GPU, the slides measured 0.12 s for the products, 2.16 s for the copies and 3.13 s for both: 1.37 of "
            "the sum."
        )

    def columns(self) -> List[Column]:
        return [
            Column("copies", "copies"),
            Column("run_seconds", "run", scale=1e3),
            Column("copy_seconds", "copy", scale=1e3),
            Column("overlapped_seconds", "both", scale=1e3),
            Column("overlapped_over_longer", "/longer", ".2f"),
            Column("overlapped_over_sum", "/sum", ".2f"),
            Column("expected_over_sum", "exp.", ".2f"),
            Column("beside", "beside", ".0%"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        """For each row two bars: products, then copies, which is 1; and below it both with no wait."""
        rows = result["rows"]
        figure.set_figheight(0.95 * len(rows))
        axes = figure.add_subplot()
        for y, row in enumerate(rows):
            run = row.metrics["run_seconds"] / row.metrics["in_turn_seconds"]
            both = row.metrics["overlapped_over_sum"]
            bars = ((0, run, -0.1), (run, 1 - run, -0.1), (0, both, 0.1))
            for (left, width, lower), colour in zip(bars, style.COLOURS):
                axes.barh(y + lower, width, height=0.2, left=left, color=colour)
            axes.plot([max(run, 1 - run)] * 2, [y, y + 0.2], color=style.INK)
            axes.annotate(row.label, (0, y - 0.2), (2, 2), textcoords="offset points", va="bottom")
            axes.annotate(
                f"{both:.2f}", (max(both, 1.0), y + 0.1), (6, 0), textcoords="offset points", va="center", weight="bold"
            )
        axes.set_ylim(len(rows) - 0.6, -0.6)
        axes.set_xlim(0, 1.15 * max(1.0, *(row.metrics["overlapped_over_sum"] for row in rows)))
        axes.set_yticks([])
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("time; products, then copies = 1")
        parts = ["products", "copies", "both, no wait", "longer of the two"]
        figure.legend([*axes.containers[:3], axes.lines[0]], parts, loc="outside lower center", ncols=2)


def expected_over_sum(count: int, work: float, copy: float) -> float:
    """What a chain of ``count`` products of ``work`` seconds, each followed by ``copy`` seconds of copies, should take
    on two workers, as a part of the sum. One product is ready at a time, so its copies find a free worker; they wait
    for each other, since all land in one place.

    >>> expected_over_sum(50, 1.0, 1.0)
    0.51
    """
    return (work + (count - 1) * max(work, copy) + copy) / (count * (work + copy))

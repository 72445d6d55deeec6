"""Compute, and copy the results away: does it help not to wait between the two?

The slides run 50 products, copy the 50 results to the CPU, and then do both without a wait between. By their own
numbers, both take *more* than one after the other. They say "Overlapping shaves real time" all the same.

The cost model: what overlaps takes the longer of the two times, what doesn't takes their sum. On CPU devices the worker
of a copy's source does the copy, and a queue is first in, first out::

    one worker                  p1 p2 p3 c1 c2 c3    the sum, in whatever order they are pushed
    two workers, independent    p1 p3 c1 c3          the products fill both workers, and the copies come after them:
                                p2 .. c2             nothing is left to hide behind
    two workers, chain          p1 p2 p3             a product waits for the one before: one worker is free,
                                   c1 c2 c3          and a copy hides behind the next product

One copy on a CPU is short beside a product: little to hide. So each result is also copied as often as takes as long as
its product: then overlapping can save the most, half of the sum.

On a GPU, copies have a thread and a stream of their own, but copies to pageable memory, as in the slides, are
synchronous. In stock settings a copy goes into memory fresh from the system, which makes it slower here.
"""

from __future__ import annotations

from typing import List, Tuple

from mxdp import process
from mxdp.errors import plural
from mxdp.experiments.automatic_parallelism import slides
from mxdp.experiments.harness.claims import Claim, at_most, estimate, unsure
from mxdp.experiments.harness.environments import STOCK, workers
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, experiment
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, keep, one_way

Parts = Tuple[float, float, float]
"""Seconds of the products alone, of the copies alone, and of both with no wait between."""

SLIDES_RUN, SLIDES_COPY, SLIDES_BOTH = 0.1232, 2.1620, 3.1346
"""Seconds in the slides, on a GPU."""
CLAIM, BALANCE = 1.15, 0.75
"""Both take at most CLAIM times as long as the longer of the two; the shorter takes at least BALANCE of the longer, or
there is little to hide. Both are ours."""
HELPS = 0.9
"""Both over the sum, above which next to nothing was hidden."""
SLIDES, INDEPENDENT, CHAIN = "slides", "indep.", "chain"
ENGINES = {"stock": (1, STOCK), "1 worker": (1, workers(1)), "2 workers": (2, workers(2))}
RECORDED = (
    *((CHAIN, engine) for engine in ENGINES), (INDEPENDENT, "2 workers"), (SLIDES, "stock"), (SLIDES, "2 workers"),
)  # fmt: skip
"""The work and the engines of which both without a wait between are recorded."""


@experiment
class CopyOverlap(Experiment):
    """The slides' products and copies, and two kinds that take equally long, on three engines."""

    name = "copy-overlap"
    question = "Can results be copied away while the next are computed?"
    source = "Dive into Deep Learning, 'Automatic Parallelism'"
    how_to_read = (
        "In ms, run: the products alone; copy: the copies of their results; both: with no wait between. '/longer' is "
        "both over the longer of the two (1: the other is hidden), '/sum' both over their sum (1: nothing is hidden), "
        "'exp.' the '/sum' expected from the rates measured at set-up, 'beside' the share of a timeline in which "
        "products and copies run at the same time. slides: independent products of square matrices, each result copied "
        "once; indep.: products of tall matrices, each result copied as often ('copies') as takes as long as its "
        "product; chain: the same, but each product needs the one before. stock: MXNet's own settings."
    )
    claims = {
        "chain_over_longer": Claim(
            "Copies hide beside products where a device has a free worker: a chain of products and the copies of "
            f"its results take at most {CLAIM} times as long as the longer of the two.",
            "the slides say 'Overlapping shaves real time'; the work and the bound are ours",
            CLAIM,
        ),
        "chain_alike": Claim(
            "There is something to hide in that chain: alone, the shorter of products and copies takes at least "
            f"{BALANCE} of the longer. Which is the shorter is decided once, over all rounds.",
            "ours",
            BALANCE,
            least=True,
        ),
    }
    compared = "products, and every copy of them, against NumPy's products, exactly"
    together = True
    # Without a size, products are scaled to the machine, by the rate of small ones: all take `run_seconds`.
    # `full` takes an eighth of the slides' work: theirs (`--size 4000`) is hours on a CPU.
    common = dict(kind="auto", seed=0, products=slides.PRODUCTS)
    presets = {
        "quick": dict(common, rounds=6, timeout=120.0, size=None, run_seconds=0.08, nbytes=1 << 22),
        "full": dict(common, rounds=1, timeout=3600.0, size=slides.SIDE // 2, run_seconds=1.0, nbytes=64_000_000),
    }
    little = dict(size=64, products=2, run_seconds=0.001, nbytes=65536)

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(f"{work}, {engine}", 1, 1, {"work": work, "engine": engine, "workers": count}, environment)
            for work in (SLIDES, INDEPENDENT, CHAIN)
            for engine, (count, environment) in ENGINES.items()
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        two = min(2, cores)
        one, apart, chain = (
            expected_parts(settings["products"], 1.0, 1.0, at_once, chained, one_landing=True)
            for at_once, chained in ((1, True), (two, False), (two, True))
        )
        return (
            f"Products and copies that take equally long on one of {plural(cores, 'core')}: "
            f"{chain[2] / max(chain[:2]):.2f} of the longer for a chain on two workers, "
            f"{apart[2] / max(apart[:2]):.2f} for independent products on two, {one[2] / max(one[:2]):.2f} for both "
            "on one, which is the sum. The slides' single copies are short beside products on a CPU: little to hide."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            case = row["case"]
            run, copy, both = expected_parts(
                case["products"],
                case["product_seconds"],
                case["copies"] * case["copy_seconds"],
                min(case["workers"], process.cores()),
                case["work"] == CHAIN,
                case["work"] != SLIDES,
            )
            row["metrics"]["expected_over_sum"] = both / (run + copy)
        chain = find(rows, work=CHAIN, engine="2 workers")
        if chain:
            alone = zip(chain["rounds"]["run_seconds"], chain["rounds"]["copy_seconds"])
            keep(chain, "chain_over_longer", chain["rounds"]["overlapped_over_longer"])
            keep(chain, "chain_alike", [1 / each for each in one_way([run / copy for run, copy in alone])])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        found = {(row["case"]["work"], row["case"]["engine"]): row for row in rows}
        over_sum = {key: f"{row['metrics']['overlapped_over_sum']:.2f}" for key, row in found.items()}
        best, square = found[CHAIN, "2 workers"], found[SLIDES, "1 worker"]["case"]
        ours = found[SLIDES, "1 worker"]["metrics"]
        shares = [row["metrics"].get("beside") for row in (best, found[CHAIN, "1 worker"])]
        seen = ""
        if None not in shares:
            seen = (
                f" Recorded, products and copies run at the same time for {shares[0]:.0%} of the time; on one worker "
                f"{shares[1]:.0%}."
            )
        helps = {
            True: "It helps where a device has a free worker:",
            False: "It should help where a device has a free worker, but did not here:",
            None: f"One can't tell if it helps ({unsure(best, 'overlapped_over_sum')}):",
        }[at_most(best, "overlapped_over_sum", HELPS)]
        said = [
            f"{helps} on two workers a chain of products and the copies take {estimate(best, 'chain_over_longer'):.2f} "
            f"of the longer, {estimate(best, 'overlapped_over_sum'):.2f} of the sum (the shorter alone took "
            f"{estimate(best, 'chain_alike'):.2f} of the longer).{seen}",
            f"One worker does one after the other, {over_sum[CHAIN, '1 worker']} of the sum, in stock settings "
            f"{over_sum[CHAIN, 'stock']}; independent products fill both workers before any copy can start, "
            f"{over_sum[INDEPENDENT, '2 workers']}.",
            "The slides' own work is "
            f"{slides.size_in_words(square['products'], square['width'], square, settings)}; its copies are "
            f"{ours['copy_seconds'] / ours['in_turn_seconds']:.1%} of the sum here, and both take "
            f"{over_sum[SLIDES, '2 workers']} of it, in stock settings {over_sum[SLIDES, 'stock']}.",
            f"The slides, on a GPU: {SLIDES_RUN} s and {SLIDES_COPY} s alone, {SLIDES_BOTH} s both, "
            f"{SLIDES_BOTH / SLIDES_COPY:.2f} of the longer and {SLIDES_BOTH / (SLIDES_RUN + SLIDES_COPY):.2f} of the "
            "sum: not to wait cost time.",
        ]
        if best["case"]["devices"][0].startswith("cpu"):
            said[-1] = f"{said[-1][:-1]}; no GPU was measured here."
        return " ".join(said)

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
            numbers = row["metrics"]
            run = numbers["run_seconds"] / numbers["in_turn_seconds"]
            both, longer = numbers["overlapped_over_sum"], max(run, 1 - run)
            parts = (("products", 0, run, -0.1), ("copies", run, 1 - run, -0.1), ("both, no wait", 0, both, 0.1))
            for (label, left, width, lower), colour in zip(parts, style.COLOURS):
                axes.barh(y + lower, width, height=0.2, left=left, color=colour, label=label if y == 0 else None)
            axes.plot([longer] * 2, [y, y + 0.2], color=style.INK, label="longer of the two" if y == 0 else None)
            label = row["label"].replace(INDEPENDENT, "independent")
            axes.annotate(label, (0, y - 0.2), (2, 2), textcoords="offset points", va="bottom")
            axes.annotate(f"{both:.2f}", (max(both, 1.0), y + 0.1), (6, 0), textcoords="offset points", va="center",
                          weight="bold")  # fmt: skip
        axes.set_ylim(len(rows) - 0.6, -0.6)
        axes.set_xlim(0, max(1.15, 1.15 * max(row["metrics"]["overlapped_over_sum"] for row in rows)))
        axes.set_yticks([])
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("time; products, then copies = 1")
        figure.legend(loc="outside lower center", ncols=2)


def expected_parts(count: int, work: float, copy: float, at_once: int, chain: bool, one_landing: bool) -> Parts:
    """What ``count`` products of ``work`` seconds each, and ``copy`` seconds of copies of each result, should take.

    The device runs ``at_once`` jobs at the same time, and takes first the job that has been ready for longest.
    Independent products are all ready at once, so the copies come after them. Of a ``chain`` one product is ready at a
    time, and a copy finds a free worker. With ``one_landing`` the copies wait for each other.

    >>> expected_parts(50, 1.0, 1.0, 2, chain=True, one_landing=True)
    (50.0, 50.0, 51.0)
    >>> expected_parts(50, 1.0, 1.0, 2, chain=False, one_landing=True)
    (25.0, 50.0, 75.0)
    """
    run = count * work / (1 if chain else at_once)
    copies = count * copy / (1 if one_landing else at_once)
    if chain and at_once > 1:
        return run, copies, work + (count - 1) * max(work, copy) + copy
    return run, copies, run + copies

"""Compute, and copy the results away: does it help not to wait between the two?

The deck runs 50 products, copies the 50 results to the CPU, and then does both without a wait between, so that a result
can travel while the next is computed. Its own numbers: run 0.1232 s, copy 2.1620 s, both 3.1346 s: *more* than one
after the other. It says "Overlapping shaves real time" all the same.

The cost model: what overlaps takes as long as the longer of the two, what doesn't as long as their sum. On CPU devices
a copy is the work of its source's worker, and a queue is first in, first out. So::

    one worker                  p1 p2 p3 c1 c2 c3    the sum, whatever is pushed
    two workers, independent    p1 p3 c1 c3          the products fill both workers, and copies come after them:
                                p2 .. c2             nothing is left to hide behind
    two workers, chain          p1 p2 p3             a product waits for the one before: there is a core to spare,
                                   c1 c2 c3          and a copy hides behind the next product

A copy on a CPU is so much shorter than a product that there is next to nothing to hide. So each result is also copied
as many times as take as long as its product: then overlapping can save most, half of the sum.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Tuple

from mxdp import process
from mxdp.experiments.automatic_parallelism import overlap_model as overlaps
from mxdp.experiments.automatic_parallelism import slides as deck
from mxdp.experiments.harness.environments import STOCK, workers
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
from mxdp.experiments.report.rows import metric, plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DECK_RUN, DECK_COPY, DECK_BOTH = 0.1232, 2.1620, 3.1346
"""Seconds in the deck, on a GPU."""
CLAIM, BALANCE = 1.15, 0.75
"""Both take at most so many times as long as the longer; while the shorter is at least such a part of it."""
HELPS = 0.9
"""Both over the sum, above which next to nothing was hidden."""
DECK, INDEPENDENT, CHAIN = "deck", "indep.", "chain"
ENGINES = {"stock": (1, STOCK), "1 worker": (1, workers(1)), "2 workers": (2, workers(2))}
RECORDED = (
    *((CHAIN, engine) for engine in ENGINES), (INDEPENDENT, "2 workers"), (DECK, "stock"), (DECK, "2 workers"),
)  # fmt: skip
"""The work and the engines of which both without a wait between are recorded."""


@experiment
class CopyOverlap(Experiment):
    """The deck's products and copies, and two kinds that take equally long, on three engines."""

    name = "copy-overlap"
    question = "Can results be copied away while the next are computed?"
    source = "Dive into Deep Learning, 'Automatic Parallelism'"
    how_to_read = (
        "In ms, run: the products alone, copy: the copies of their results, both: with no wait between. '/longer' is "
        "both over the longer of the two (1: the other is hidden whole), '/sum' over their sum (1: nothing is hidden), "
        "'exp.' what the rates measured at set-up say that '/sum' will be; 'beside' the share of the timeline in which "
        "products and copies run beside each other, where there is one. deck: independent products of square "
        "matrices, each result copied once; indep.: of tall ones, so many 'copies' of each as take as long as its "
        "product; chain: so, too, and each product needs the one before. stock: MXNet's own settings."
    )
    together = True
    # Without a size, products are scaled to the machine, by the rate of small ones: all in so many seconds. The deck's
    # 50 took 0.12 s on its GPU.
    presets = {
        "quick": dict(
            kind="auto", seed=0, rounds=5, timeout=120.0,
            products=deck.PRODUCTS, size=None, run_seconds=0.1, nbytes=1 << 22,
        ),
        "full": dict(
            kind="auto", seed=0, rounds=5, timeout=14400.0,
            products=deck.PRODUCTS, size=deck.SIDE, run_seconds=2.5, nbytes=64_000_000,
        ),
    }  # fmt: skip

    def __init__(self) -> None:
        self._balanced: Any = None

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(
                f"{work}, {engine}",
                settings={"work": work, "engine": engine, "workers": count},
                environment=environment,
            )
            for work in (DECK, INDEPENDENT, CHAIN)
            for engine, (count, environment) in ENGINES.items()
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        two = min(2, cores)
        one, apart, chain = (
            overlaps.expected_parts(settings["products"], 1.0, 1.0, at_once, chained, one_landing=True)
            for at_once, chained in ((1, True), (two, False), (two, True))
        )
        return (
            f"Products and copies that take equally long on one of {plural(cores, 'core')}: "
            f"{chain[2] / max(chain[:2]):.2f} of the longer for a chain on two workers, "
            f"{apart[2] / max(apart[:2]):.2f} for independent products on two, {one[2] / max(one[:2]):.2f} for both "
            "on one, which is the sum. The deck's single copies are short beside products on a CPU: little to hide."
        )

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        from mxdp.backend import np
        from mxdp.experiments.automatic_parallelism.work.copies_away import places
        from mxdp.experiments.automatic_parallelism.work.products import count_wrong_products, whole_factors

        device, host = places(settings["kind"])
        lefts, w = whole_factors(4, device, settings["seed"])
        work = _work(case, lefts, w, host, [[np.zeros(w.shape, ctx=host) for _ in range(3)] for _ in lefts])
        work.run()
        work.copy()
        found = [(result, *landed) for result, landed in zip(work.results, work.landed)]
        checked, wrong = count_wrong_products(found, lefts, w, case.settings["work"] == CHAIN)
        return Oracle(checked, wrong, "products, and every copy of them, against NumPy's products, exactly")

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp.backend import np
        from mxdp.experiments.automatic_parallelism.work.copies_away import both, places, seconds_of_parts
        from mxdp.experiments.automatic_parallelism.work.products import factors, multiply_adds_a_second
        from mxdp.experiments.measure.timelines import recorded

        device, host = places(settings["kind"])
        rate = case.settings.get("rate") or multiply_adds_a_second(device)
        size = self._size(case, settings, rate, device, host)
        count = size.fitting(settings["products"], device, host)

        def work(count: int) -> Any:
            x, w = factors(size.height, size.width, device, settings["seed"])
            landing = np.zeros(x.shape, ctx=host)
            return _work(case, [x] * count, w, host, [[landing] * size.copies] * count)

        # The deck's size takes minutes, so it is not run whole to warm up; but the memory should be there.
        size.touch(count, device, host)
        seconds_of_parts(work(min(5, count)))
        yield Ready([str(device), str(host)], {**asdict(size), "products": count}, {"rate": rate})
        rounds: List[overlaps.Parts] = []
        for number in itertools.count(1):
            rounds.append(seconds_of_parts(work(count)))
            last = number == settings["rounds"] and _what(case.settings) in RECORDED
            timeline = recorded(partial(both, work(count)), [device, host]) if last else {}
            yield Round(rounds[-1][2], {**timeline, **overlaps.describe(rounds)})

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            case = row["case"]
            run, copy, both = overlaps.expected_parts(
                case["products"],
                case["product_seconds"],
                case["copies"] * case["copy_seconds"],
                min(case["workers"], process.cores()),
                case["work"] == CHAIN,
                case["work"] != DECK,
            )
            row["metrics"]["expected_over_sum"] = both / (run + copy)

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        found = {_what(row["case"]): row for row in rows}
        over_sum = {key: f"{row['metrics']['overlapped_over_sum']:.2f}" for key, row in found.items()}
        best, square = found[CHAIN, "2 workers"], found[DECK, "1 worker"]["case"]
        stock, ours = (found[DECK, engine]["metrics"] for engine in ("stock", "1 worker"))
        balance, over_longer = overlaps.alike(best), best["metrics"]["overlapped_over_longer"]
        said = [
            "It helps where a device has a worker to spare."
            if best["metrics"]["overlapped_over_sum"] <= HELPS
            else "It should help where a device has a worker to spare, and did not here (one core, or other work on "
            "the machine).",
            "A chain of products and the copies, on two workers: "
            f"{over_longer:.2f} of the longer (asked for: at most {CLAIM}; alone, the shorter took {balance:.2f} of "
            f"the longer), {over_sum[CHAIN, '2 workers']} of the sum.{_seen(best, found[CHAIN, '1 worker'])}",
            f"It doesn't on one worker, which takes them in turn whoever waits: {over_sum[CHAIN, '1 worker']} of the "
            f"sum, in stock settings {over_sum[CHAIN, 'stock']}; nor for independent products, which fill both "
            f"workers before any copy can: {over_sum[INDEPENDENT, '2 workers']}.",
            "Nor where there is little to hide. In the deck's own work, "
            f"{deck.size_in_words(square['products'], square['width'], square, settings)}, its single copies are "
            f"{ours['copy_seconds'] / ours['in_turn_seconds']:.1%} of the sum here (in stock settings, into memory "
            f"fresh from the system, {stock['copy_seconds'] / ours['copy_seconds']:.1f} times as long), and both "
            f"take {over_sum[DECK, '2 workers']} of it, in stock settings {over_sum[DECK, 'stock']}.",
            f"The deck, on a GPU: {DECK_RUN} s and {DECK_COPY} s alone, {DECK_BOTH} s both, "
            f"{DECK_BOTH / DECK_COPY:.2f} of the longer and {DECK_BOTH / (DECK_RUN + DECK_COPY):.2f} of the sum: not "
            "to wait cost time.",
        ]
        if best["case"]["devices"][0].startswith("cpu"):
            said.append(
                "A GPU's copies have a thread and a stream of their own, but to pageable memory, as the deck's, "
                "they are synchronous; no GPU was measured here."
            )
        return Verdict(over_longer <= CLAIM and balance >= BALANCE, " ".join(said))

    def columns(self) -> List[Column]:
        def milliseconds(heading: str, name: str) -> Column:
            return Column(heading, lambda row: style.number(row["metrics"][name] * 1e3))

        return [
            Column("copies", lambda row: str(row["case"]["copies"])),
            milliseconds("run", "run_seconds"),
            milliseconds("copy", "copy_seconds"),
            milliseconds("both", "overlapped_seconds"),
            metric("overlapped_over_longer", "/longer"),
            metric("overlapped_over_sum", "/sum"),
            metric("expected_over_sum", "exp."),
            metric("beside", "beside", "{:.0%}"),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        figure.set_figheight(0.95 * len(result["rows"]))
        axes = figure.add_subplot()
        overlaps.draw(axes, result["rows"])
        figure.legend(loc="outside lower center", ncols=2)

    def _size(self, case: Case, settings: Settings, rate: float, device: Any, host: Any) -> Any:
        """The case's size. All processes have the deck's alike; the other follows from what copies cost, and is
        measured once in each."""
        from mxdp.experiments.automatic_parallelism.work.copies_away import balanced, square
        from mxdp.experiments.automatic_parallelism.work.products import square_side

        products = settings["products"]
        each = settings["run_seconds"] / products
        if case.settings["work"] == DECK:
            return square(settings["size"] or square_side(each, rate), device, host)
        if self._balanced is None:
            self._balanced = balanced(each, settings["nbytes"], products, rate, device, host)
        return self._balanced


def _what(case: Mapping[str, Any]) -> Tuple[str, str]:
    return case["work"], case["engine"]


def _seen(best: Row, one: Row) -> str:
    """What the timelines of a chain on two workers and on one show, if there are any."""
    shares = [row["metrics"].get("beside") for row in (best, one)]
    if None in shares:
        return ""
    return (
        f" Recorded, products and copies run beside each other for {shares[0]:.0%} of the time, and "
        f"{best['metrics']['hidden']:.0%} of the copies' time is hidden so; on one worker {shares[1]:.0%}."
    )


def _work(case: Case, lefts: Any, w: Any, host: Any, landings: Any) -> Any:
    from mxdp.experiments.automatic_parallelism.work.copies_away import Fresh, Kept

    if case.settings["work"] == DECK:
        return Fresh(lefts, w, host)
    return Kept(lefts, w, case.settings["work"] == CHAIN, landings)

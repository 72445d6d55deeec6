"""What do mxdp's settings and data path bring over the book's loop, as it stands?

The book's loop (``mxdp/experiments/book_loop.py``): its own data loader with four worker processes and a Python call
for each sample, its operators, a ``waitall`` after each step, and MXNet's own environment. mxdp's: the data in memory,
oneDNN's operators, and a process set up so that CPU contexts share nothing. Same network, data, batch, learning rate
and start.

The cost model: in stock settings the devices wait for each other (see two-jobs), so two take what one takes; mxdp's two
take half, and the book's loader comes on top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional

from mxdp import process
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
from mxdp.experiments.report.rows import find, find_all, metric, plural, ratio, row_bars, seconds
from mxdp.plans.cost.link import speedup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = 0.55
HANGS_FROM = 4
"""From so many cores on MXNet takes two OpenMP threads, and the book's ``np.dot`` on two CPU contexts hangs."""
BOOK = "`pip install --no-deps d2l==1.0.3` and `pip install ipython matplotlib-inline pandas`, or `make run`"


@experiment
class StockLoop(Experiment):
    """The book's loop and mxdp's, on one and on several devices, round by round in turn."""

    name = "stock-loop"
    question = "What do mxdp's settings and data path bring over the book's loop as it stands?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs'; MXNet's default environment"
    how_to_read = (
        "A round is an epoch of 'samples' samples on each row in turn, data path included. 'Of the book's' is the "
        "row's time over the book's loop on as many devices, the median over the rounds. On four cores or more the "
        "book's loop gets OMP_NUM_THREADS=1 on several devices, since it hangs with MXNet's default there."
    )
    needs = dict.fromkeys(("d2l", "IPython", "matplotlib_inline", "pandas"), BOOK)
    presets = {
        "quick": dict(
            devices=[1, 2], kind="auto", data="auto", data_dir=None, seed=0, rounds=5, timeout=300.0,
            batch_size=256, lr=0.2, samples=5120,
        ),
        "full": dict(
            devices=[1, 2], kind="auto", data="auto", data_dir=None, seed=0, rounds=5, timeout=7200.0,
            batch_size=256, lr=0.2, samples=None,
        ),
    }  # fmt: skip

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(
                f"{loop}, {plural(n, 'device')}",
                n,
                settings={"loop": loop, "num_devices": n},
                environment=_stock(n) if loop == "book" else {},
            )
            for n in settings["devices"]
            for loop in ("book", "mxdp")
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        said = [f"{1 / speedup(n, cores):.2f} on {plural(n, 'device')}" for n in settings["devices"]]
        return f"At most, as a part of the book's time: {', '.join(said)}; less by what the book's loader costs."

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        from mxdp.experiments.data_parallel.work import book_loop
        from mxdp.experiments.data_parallel.work.serial_run import check_step, synced_step
        from mxdp.experiments.measure.devices import devices_of

        step: Any = book_loop.train_batch if case.settings["loop"] == "book" else synced_step()
        layout: Any = book_loop.book_layout if case.settings["loop"] == "book" else list
        checked, wrong = check_step(devices_of(case, settings), 60, settings["seed"], step=step, layout=layout)
        return Oracle(checked, wrong, "gradients and parameters of every replica, against mxdp on one device")

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        import mxdp
        from mxdp.experiments.measure.devices import devices_of

        devices = devices_of(case, settings)
        data = mxdp.load(settings["data"], settings["data_dir"], seed=settings["seed"])
        if settings["samples"]:
            data = data.take(settings["samples"])
        rounds = (_book_rounds if case.settings["loop"] == "book" else _mxdp_rounds)(data, devices, settings)
        next(rounds)
        yield Ready([str(device) for device in devices], {"data": data.name, "epoch_samples": len(data.train.y)})
        for took in rounds:
            yield Round(took)

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            median, metrics = row["seconds"]["median"], row["metrics"]
            metrics["sec_per_epoch"] = median
            metrics["samples_per_sec"] = row["case"]["epoch_samples"] / median
            book = find(rows, loop="book", num_devices=row["case"]["num_devices"])
            metrics["of_book"] = ratio(row, book) if book else None

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        ours = find_all(rows, loop="mxdp")
        said = [
            f"On {plural(row['case']['num_devices'], 'device')} an epoch of {row['case']['epoch_samples']:,} samples "
            f"takes {row['metrics']['sec_per_epoch']:.2f} s, {row['metrics']['of_book']:.2f} of the book's time."
            for row in ours
        ]
        return Verdict(ours[-1]["metrics"]["of_book"] <= CLAIM, " ".join(said))

    def columns(self) -> List[Column]:
        return [
            metric("sec_per_epoch", "s/epoch"),
            seconds("median (min-max)"),
            metric("samples_per_sec", "samples/s", "{:,.0f}"),
            metric("of_book", "of the book's"),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        rows = result["rows"]
        colours = [style.GREY if row["case"]["loop"] == "book" else style.COLOURS[0] for row in rows]
        row_bars(figure, rows, "s/epoch", colours)


def _stock(devices: int) -> Dict[str, Optional[str]]:
    """MXNet's default environment, as far as it doesn't hang."""
    environment: Dict[str, Optional[str]] = {**dict.fromkeys(process.SETTINGS), "MXDP_PREPARE": "0"}
    if devices > 1 and process.cores() >= HANGS_FROM:
        environment["OMP_NUM_THREADS"] = "1"
    return environment


def _mxdp_rounds(data: Any, devices: List[Any], settings: Settings) -> Iterator[float]:
    import mxdp
    from mxdp.training import train_epochs

    replicas = [mxdp.get_params(mxdp.init_lenet(settings["seed"]), device) for device in devices]
    for epoch in train_epochs(
        data.train, replicas, devices, settings["batch_size"], settings["lr"], seed=settings["seed"]
    ):
        yield epoch.seconds


def _book_rounds(data: Any, devices: List[Any], settings: Settings) -> Iterator[float]:
    import mxdp
    from mxdp.experiments.data_parallel.work import book_loop

    params = book_loop.book_layout(mxdp.init_lenet(settings["seed"]))
    replicas = [mxdp.get_params(params, device) for device in devices]
    train_iter = book_loop.data_loader(data.train, data.test, settings["batch_size"])
    timer = mxdp.Timer()
    while True:
        with timer:
            book_loop.train_epoch(train_iter, replicas, devices, settings["lr"])
        yield timer.times[-1]

"""``python -m mxdp.experiments predict``: what it asks, and what it shows."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterable, List, NamedTuple, Sequence, Tuple

from rich.console import Console
from rich.table import Table

from mxdp import process
from mxdp.errors import MxdpError, UsageError, plural
from mxdp.experiments.lab.settings import parse_toml
from mxdp.experiments.predict import fits, inputs, page, published
from mxdp.experiments.predict.checked import checked_number, whole
from mxdp.experiments.predict.inputs import (
    ASSUMED,
    GIVEN,
    HERE,
    PUBLISHED,
    USUAL,
    Known,
    KnownMachine,
)
from mxdp.experiments.predict.ways import HEADINGS, Predicted, all_ways, scaling
from mxdp.files import check_file, write_beside
from mxdp.plans.cost.step import Network
from mxdp.plans.cost.training_memory import BYTES, STATE

BATCH = 64
MEASURED = ("lenet", "resnet18")
"""Networks that are measured here if nothing says how fast a device is; so is a symbol."""
OF_MEMORY = {"parameters", "optimizer", "dtype", "room"}
OF_BOTH = {"model", "input", "batch", "machine", "devices", "nodes"}
"""Options that ask about memory alone, and about memory or a step; the others ask about a step alone."""
LONGEST = 300.0
"""Seconds of a measurement."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    nets = "lenet (default), resnet18, resnet50, resnet101 or vgg16; a symbol that MXNet exported (.json); "
    parser.add_argument("--model", metavar="NET", help=f"{nets}a list of layers (.toml)")
    parser.add_argument(
        "--input", metavar="C,H,W", help="of a sample, for a symbol, as in 3,224,224"
    )
    parser.add_argument("--batch", type=int, metavar="B", help=f"samples of a device ({BATCH})")
    parser.add_argument(
        "--speed", type=float, metavar="S", help="samples a second of one device, if you know it"
    )
    parser.add_argument(
        "--machine", metavar="NAME", help="a machine of docs/predict.md, or a TOML file"
    )
    parser.add_argument(
        "--devices", type=int, metavar="N", help=f"in each node ({USUAL['devices']})"
    )
    parser.add_argument("--nodes", type=int, metavar="N", help=f"({USUAL['nodes']})")
    parser.add_argument(
        "--link", metavar="LINK", help="between nodes: nvlink, pcie, 10gbe, 100gbe or ALPHA,BETA"
    )
    parser.add_argument("--inside", metavar="LINK", help="inside a node, likewise (nvlink)")
    parser.add_argument(
        "--kind", choices=("auto", "cpu", "gpu"), help="of the device measured here (auto)"
    )
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="write the measured network, for --model elsewhere",
    )
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="weak and strong scaling (.png, .svg or .pdf)"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="a page with all of it and the step as a timeline"
    )
    parser.add_argument(
        "--published", action="store_true", help="what others measured, beside what is predicted"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument(
        "--memory", action="store_true", help="what a device must hold in training; for it alone:"
    )
    parser.add_argument(
        "--parameters", type=float, metavar="N", help="of the model, as in 7e9, in place of --model"
    )
    parser.add_argument("--optimizer", metavar="NAME", help=f"{', '.join(STATE)} (adam)")
    parser.add_argument("--dtype", metavar="NAME", help=f"{', '.join(BYTES)} (float32)")
    parser.add_argument("--room", type=float, metavar="GB", help=f"of a device ({fits.ROOM:g})")


def main(options: argparse.Namespace) -> None:
    """Predict, and show it. Raises a UsageError for what can't be, an MxdpError if no device can be measured here."""
    _check_effects(options)
    if options.published:
        _show_published(options)
        return
    for file in (options.picture, options.html, options.save):
        if file:
            check_file(file)
    batch = BATCH if options.batch is None else whole(options.batch, "--batch")
    machine = inputs.machine(
        options.machine,
        devices=options.devices,
        nodes=options.nodes,
        inside=options.inside,
        between=options.link,
    )
    if options.memory:
        record, rows = fits.predicted(options, machine.cluster.count, batch)
        title = f"{record['model']}, {record['dtype']}, on {plural(record['devices'], 'device')}"
        below = "\n".join([record["answer"], record["counted"], fits.SHARDS])
        _show(options, record, TitledTable(title, fits.HEADINGS, rows, below))
        return
    network, known = _network(options, machine, batch)
    asked = network, machine.cluster, batch
    predicted = Predicted(*asked, all_ways(*asked), scaling(*asked), [*machine.known, *known])
    if options.picture:
        write_beside(options.picture, page.scaling_picture(predicted, options.picture.suffix[1:]))
    if options.html:
        write_beside(options.html, page.page(predicted))
    title = f"{predicted.title}, batch {batch} a device"
    rows = [row.cells() for row in predicted.rows]
    ways = TitledTable(title, HEADINGS, rows, f"{predicted.answer}\n")
    rows = [number.cells() for number in predicted.known]
    starts = TitledTable("What this starts from", ("number", "value", "is"), rows)
    _show(options, predicted.as_json(), ways, starts)


def _show_published(options: argparse.Namespace) -> None:
    """What others measured, beside what is predicted."""
    below = "Sources: --json, and docs/predict.md."
    if options.memory:
        figures = published.figures("memory")
        headings: Sequence[str] = ("figure", "published", "here", "off")
    else:
        figures = published.figures("figure")
        headings = published.HEADINGS
        below = (
            f"{published.how_far_off()}\n{below} Nothing in the model is tuned to these figures."
        )
    rows = [figure.cells() for figure in figures]
    record = [figure.as_json() for figure in figures]
    _show(options, record, TitledTable("", headings, rows, below))


class TitledTable(NamedTuple):
    """A table for a reader, with sentences below it."""

    title: str
    headings: Sequence[str]
    rows: List[List[str]]
    below: str = ""


def _show(options: argparse.Namespace, record: Any, *tables: TitledTable) -> None:
    """Print the record for programs, or the tables for a reader."""
    if options.json:
        print(json.dumps(record, indent=2))
        return
    console = Console(highlight=False)
    for shown in tables:
        table = Table(box=None, pad_edge=False, title=shown.title, title_justify="left")
        for heading, *cells in zip(shown.headings, *shown.rows):
            numbers = all(cell[0] in "0123456789+-–" for cell in cells)
            table.add_column(heading, justify="right" if numbers else "left", no_wrap=numbers)
        for row in shown.rows:
            table.add_row(*row)
        console.print(table)
        if shown.below:
            console.print(f"\n{shown.below}", markup=False)


def _check_effects(options: argparse.Namespace) -> None:
    """Raise a UsageError for an option that would have no effect beside the others."""
    # 0 is a value: `in (None, False)` would take it for False.
    given = {name for name, value in vars(options).items() if not (value is None or value is False)}
    given -= {"command", "json", "published", "memory"}
    if options.published:
        _refuse(given, "with --published: leave it out")
    elif options.memory:
        _refuse(given - OF_MEMORY - OF_BOTH, "with --memory: leave it out, or leave --memory out")
        if {"machine", "devices", "nodes"} <= given:
            raise UsageError(
                "--machine has no effect with --memory, --devices and --nodes: leave it out"
            )
    else:
        _refuse(given & OF_MEMORY, "without --memory: it is of --memory, which was not given")
    if "parameters" in given:
        if "model" in given:
            raise UsageError(
                "--parameters and --model both say how large the model is: give one of them"
            )
        _refuse(given & {"input", "batch"}, "with --parameters, which name no layers: leave it out")


def _refuse(names: Iterable[str], why: str) -> None:
    for name in sorted(names):
        raise UsageError(f"--{name} has no effect {why}")


def _network(
    options: argparse.Namespace, machine: KnownMachine, batch: int
) -> Tuple[Network, List[Known]]:
    if options.speed is not None:
        checked_number(options.speed, "--speed, samples a second,", zero=False)
    model = options.model or inputs.MODEL
    rate = options.speed or machine.samples_per_second.get(model)
    network, source = inputs.known_network(model, rate, inputs.sample(options.input))
    if rate is None and (model in MEASURED or model.endswith(".json")):
        return _measured(model, options, batch)
    if options.kind:
        raise UsageError(f"--kind has no effect: {model} is not measured here; leave it out")
    if options.save:
        raise UsageError(
            f"--save writes a network that was measured here: {', '.join(MEASURED)} or a symbol, without --speed"
        )
    if source:
        if options.speed:
            raise UsageError(
                f"{model} has the times of its layers, so --speed has no effect: leave it out"
            )
        times = f"{network.name}: times of its layers"
        return network, [Known(times, f"{len(network.layers)} layers", GIVEN, source)]
    if rate is None:
        raise UsageError(
            f"nobody has said how fast one device trains {model}: give --speed, samples a second, or a "
            f"--machine that says so; {', '.join(MEASURED)} and symbols (.json) can be measured here"
        )
    speed = Known(f"{network.name}: one device", f"{rate:g} samples/s", GIVEN)
    if not options.speed:
        speed = speed._replace(mark=PUBLISHED, source=machine.source)
    return network, [
        speed,
        Known(f"{network.name}: shares of its layers", "by their operations", ASSUMED),
        Known("spread of a step", "none", ASSUMED),
    ]


def _measured(model: str, options: argparse.Namespace, batch: int) -> Tuple[Network, List[Known]]:
    """Measured by a process of its own, which loads MXNet."""
    if not options.json:
        print(f"Measuring {model} on one device of this machine (some 15 s) ...", file=sys.stderr)
    program = [sys.executable, "-m", "mxdp.experiments.predict.measured"]
    words = [*program, model, str(batch), options.kind or "auto", options.input or "1,28,28"]
    # One device doesn't need more copies of MXNet's temporary space; ResNet-18 would fill a hundred of them.
    environment = {**process.unprepared(), "MXNET_CPU_TEMP_COPY": str(process.MXNET_TEMP_COPY)}
    try:
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        raise MxdpError(
            f"measuring {model} took more than {LONGEST:g} s; give --speed instead"
        ) from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise MxdpError(
            f"{model} can't be measured here: {last}; give --speed, samples a second, instead"
        )
    measured = parse_toml(done.stdout)
    network, _ = inputs.network_of(measured, Path(model))
    if options.save:
        write_beside(options.save, done.stdout)
    name = network.name
    step = f"{1e3 * (network.passes(batch) + network.update):.4g} ms of batch {batch}"
    normal = "as of a normal distribution: assumed"
    known = [
        Known(f"{name}: a step on one device", step, HERE, f"from {measured['measured']}"),
        Known(f"{name}: of it, whatever the batch", f"{1e3 * network.fixed:.3g} ms", HERE),
        Known(f"{name}: of it, the update", f"{1e3 * network.update:.3g} ms", HERE),
        Known("spread of a step", f"{network.spread:.1%}", HERE, normal),
    ]
    if model not in MEASURED:
        known.insert(0, Known(f"{name}: shares of its layers", "by their operations", ASSUMED))
    return network, known

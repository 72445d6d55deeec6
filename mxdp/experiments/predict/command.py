"""``python -m mxdp.experiments predict``: what it asks, and what it shows."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterable, List, Sequence, Tuple

from rich.console import Console
from rich.table import Table

from mxdp import process
from mxdp.errors import MxdpError, UsageError, plural
from mxdp.experiments.lab.settings import parse_toml
from mxdp.experiments.predict import inputs, memory, page, published
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
from mxdp.plans.cost.memory import BYTES, STATE
from mxdp.plans.cost.step import Network

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
    parser.add_argument("--room", type=float, metavar="GB", help=f"of a device ({memory.ROOM:g})")


def main(options: argparse.Namespace) -> None:
    """Predict, and show it. Raises a UsageError for what can't be, an MxdpError if no device can be measured here."""
    _check_effects(options)
    if options.published:
        figures = published.figures("memory" if options.memory else "figure")
        headings, below = (
            ("figure", "published", "here", "off"),
            "Sources: --json, and docs/predict.md.",
        )
        if not options.memory:
            headings = published.HEADINGS
            below = f"{published.how_far_off()}\n{below} Nothing in the model is tuned to these figures."
        cells = [figure.cells() for figure in figures]
        _show(options, [figure.as_json() for figure in figures], ("", headings, cells, below))
        return
    for file in (options.picture, options.html, options.save):
        if file:
            check_file(file)
    batch = BATCH if options.batch is None else whole(options.batch, "--batch")
    described = dict(
        devices=options.devices, nodes=options.nodes, inside=options.inside, between=options.link
    )
    machine = inputs.machine(options.machine, **described)
    if options.memory:
        record, rows = memory.predicted(options, machine.cluster.count, batch)
        title = f"{record['model']}, {record['dtype']}, on {plural(record['devices'], 'device')}"
        below = "\n".join([record["answer"], record["counted"], memory.SHARDS])
        _show(options, record, (title, memory.HEADINGS, rows, below))
        return
    network, known = _network(options, machine, batch)
    asked = network, machine.cluster, batch
    predicted = Predicted(*asked, all_ways(*asked), scaling(*asked), [*machine.known, *known])
    if options.picture:
        write_beside(options.picture, page.scaling_picture(predicted, options.picture.suffix[1:]))
    if options.html:
        write_beside(options.html, page.page(predicted))
    title, rows = (
        f"{predicted.title}, batch {batch} a device",
        [row.cells() for row in predicted.rows],
    )
    ways = title, HEADINGS, rows, f"{predicted.answer}\n"
    starts = (
        "What this starts from",
        ("number", "value", "is"),
        [number.cells() for number in predicted.known],
        "",
    )
    _show(options, predicted.as_json(), ways, starts)


def _show(
    options: argparse.Namespace,
    record: Any,
    *tables: Tuple[str, Sequence[str], List[List[str]], str],
) -> None:
    """Print the record for programs; for a reader tables, each with its title, headings, rows, and sentences below."""
    if options.json:
        print(json.dumps(record, indent=2))
        return
    console = Console(highlight=False)
    for title, headings, rows, below in tables:
        table = Table(box=None, pad_edge=False, title=title, title_justify="left")
        for heading, *cells in zip(headings, *rows):
            numbers = all(cell[0] in "0123456789+-–" for cell in cells)
            table.add_column(heading, justify="right" if numbers else "left", no_wrap=numbers)
        for row in rows:
            table.add_row(*row)
        console.print(table)
        if below:
            console.print(f"\n{below}", markup=False)


def _check_effects(options: argparse.Namespace) -> None:
    """Raise a UsageError for an option that would have no effect beside the others."""
    given = {
        name for name, value in vars(options).items() if value is not None and value is not False
    }
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
        return network, [
            Known(
                f"{network.name}: times of its layers",
                f"{len(network.layers)} layers",
                GIVEN,
                source,
            )
        ]
    if rate is None:
        raise UsageError(
            f"nobody has said how fast one device trains {model}: give --speed, samples a second, or a "
            f"--machine that says so; {', '.join(MEASURED)} and symbols (.json) can be measured here"
        )
    mark, source = (GIVEN, "") if options.speed else (PUBLISHED, machine.source)
    return network, [
        Known(f"{network.name}: one device", f"{rate:g} samples/s", mark, source),
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
    name, step = (
        network.name,
        f"{1e3 * (network.passes(batch) + network.update):.4g} ms of batch {batch}",
    )
    known = [
        Known(f"{name}: shares of its layers", "by their operations", ASSUMED),
        Known(f"{name}: a step on one device", step, HERE, f"from {measured['measured']}"),
        Known(f"{name}: of it, whatever the batch", f"{1e3 * network.fixed:.3g} ms", HERE),
        Known(f"{name}: of it, the update", f"{1e3 * network.update:.3g} ms", HERE),
        Known(
            "spread of a step",
            f"{network.spread:.1%}",
            HERE,
            "as of a normal distribution: assumed",
        ),
    ]
    return network, known[1:] if model in MEASURED else known

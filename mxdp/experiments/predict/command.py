"""``python -m mxdp.experiments predict``: what it asks, and what it shows."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from mxdp import process
from mxdp.errors import MxdpError, UsageError, plural
from mxdp.experiments.predict import inputs, memory, published
from mxdp.experiments.predict.inputs import ASSUMED, GIVEN, HERE, PUBLISHED, Known, KnownMachine
from mxdp.experiments.predict.ways import HEADINGS, Predicted, all_ways, scaling
from mxdp.plans.cost.cluster import Cluster
from mxdp.plans.cost.step import Network
from mxdp.plans.show.files import check_file, write_beside

BATCH, DEVICES, NODES = 64, 8, 1
MOST_DEVICES = 65536
MEASURED = ("lenet", "resnet18")
"""Networks that are measured here if nothing says how fast a device is; so is a symbol."""
LONGEST = 300.0
"""Seconds of a measurement."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    nets = "lenet (default), resnet18, resnet50, resnet101 or vgg16; a symbol that MXNet exported (.json); "
    parser.add_argument("--model", default="lenet", metavar="NET", help=f"{nets}a list of layers (.toml)")
    parser.add_argument("--input", default="1,28,28", metavar="C,H,W", help="of a sample, for a symbol (1,28,28)")
    parser.add_argument("--batch", type=int, default=BATCH, metavar="B", help=f"samples of a device ({BATCH})")
    parser.add_argument("--speed", type=float, metavar="S", help="samples a second of one device, if you know it")
    parser.add_argument("--machine", metavar="NAME", help="a machine of docs/predict.md, or a TOML file")
    parser.add_argument("--devices", type=int, metavar="N", help=f"in each node ({DEVICES})")
    parser.add_argument("--nodes", type=int, metavar="N", help=f"({NODES})")
    parser.add_argument("--link", metavar="LINK", help="between nodes: nvlink, pcie, 10gbe, 100gbe or ALPHA,BETA")
    parser.add_argument("--inside", metavar="LINK", help="inside a node, likewise (nvlink)")
    parser.add_argument("--kind", choices=("auto", "cpu", "gpu"), default="auto", help="of the device measured here")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the measured network, for --model elsewhere")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="weak and strong scaling (.png, .svg or .pdf)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="a page with all of it and the step as a timeline")
    parser.add_argument("--published", action="store_true", help="what others measured, beside what is predicted")
    parser.add_argument("--json", action="store_true", help="for programs")
    memory.add_arguments(parser)


def main(options: argparse.Namespace) -> None:
    """Predict, and show it. Raises a UsageError for what can't be, an MxdpError if no device can be measured here."""
    memory.check(options)
    if options.published:
        (_show_published_memory if options.memory else _show_published)(options.json)
        return
    for file in (options.picture, options.html, options.save):
        if file:
            check_file(file)
    machine = _machine(options)
    batch = inputs.whole(options.batch, "--batch")
    if options.memory:
        _show_memory(memory.predicted(options, machine.cluster.count, batch, _shape(options)), options.json)
        return
    network, known = _network(options, machine, batch)
    asked = network, machine.cluster, batch
    predicted = Predicted(*asked, all_ways(*asked), scaling(*asked), [*machine.known, *known])
    if options.picture or options.html:
        from mxdp.experiments.predict import page

        if options.picture:
            write_beside(options.picture, page.scaling_picture(predicted, options.picture.suffix[1:]))
        if options.html:
            write_beside(options.html, page.page(predicted))
    if options.json:
        print(json.dumps(predicted.as_json(), indent=2))
        return
    title = f"{predicted.title}, batch {batch} a device"
    _print(title, HEADINGS, [row.cells() for row in predicted.rows], HEADINGS[1:4], f"{predicted.answer}\n")
    _print("What this starts from", ("number", "value", "is"), [number.cells() for number in predicted.known])


def _machine(options: argparse.Namespace) -> KnownMachine:
    """The one that was named, or the usual one, with the changes that were asked for."""
    if options.machine:
        machine = inputs.machine(options.machine)
    else:
        (inside, one), (between, other) = inputs.link("nvlink", "inside"), inputs.link("100gbe", "between")
        cluster = Cluster(DEVICES, NODES, inside, between)
        machine = KnownMachine(cluster, [*one, *other, *inputs.how_it_works(cluster, ASSUMED)], {}, "")
    known = machine.known
    changes: Dict[str, Any] = {}
    for name, text in (("inside", options.inside), ("between", options.link)):
        if text is not None:
            changes[name], numbers = inputs.link(text, name)
            known = [number for number in known if not number.what.startswith(name)] + numbers
    for name in ("devices", "nodes"):
        if getattr(options, name) is not None:
            changes[name] = inputs.whole(getattr(options, name), f"--{name}")
    cluster = replace(machine.cluster, **changes)
    if cluster.count > MOST_DEVICES:
        raise UsageError(f"--devices and --nodes make {cluster.count:,} devices: the most are {MOST_DEVICES:,}")
    if cluster.nodes == 1:
        known = [number for number in known if not number.what.startswith("between")]
    return machine._replace(cluster=cluster, known=known)


def _network(options: argparse.Namespace, machine: KnownMachine, batch: int) -> Tuple[Network, List[Known]]:
    shape = _shape(options)
    if options.speed is not None:
        inputs.checked_number(options.speed, "--speed, samples a second,", zero=False)
    rate, mark = (options.speed, GIVEN) if options.speed else (machine.samples_per_second.get(options.model), PUBLISHED)
    network, timed = inputs.known_network(options.model, rate, shape)
    if rate is None and (options.model in MEASURED or options.model.endswith(".json")):
        return _measured(options, batch)
    if options.save:
        raise UsageError(
            f"--save writes a network that was measured here: {', '.join(MEASURED)} or a symbol, without --speed"
        )
    if timed:
        if options.speed:
            raise UsageError(f"{options.model} has the times of its layers, so --speed has no effect: leave it out")
        words = inputs.read_toml(Path(options.model)).get("measured")
        source = options.model + (f", from {words}" if words else "")
        return network, [Known(f"{network.name}: times of its layers", f"{len(network.layers)} layers", GIVEN, source)]
    if rate is None:
        raise UsageError(
            f"nobody has said how fast one device trains {options.model}: give --speed, samples a second, or a "
            f"--machine that says so; {', '.join(MEASURED)} and symbols (.json) can be measured here"
        )
    return network, [
        Known(f"{network.name}: one device", f"{rate:g} samples/s", mark, "" if mark == GIVEN else machine.source),
        Known(f"{network.name}: shares of its layers", "by their operations", ASSUMED),
        Known("spread of a step", "none", ASSUMED),
    ]


def _shape(options: argparse.Namespace) -> Tuple[int, ...]:
    """Of a sample, for a symbol."""
    try:
        return tuple(inputs.whole(int(side), "--input") for side in options.input.split(","))
    except ValueError:
        raise UsageError(f"--input {options.input}: give channels, height and width, as in 3,224,224") from None


def _measured(options: argparse.Namespace, batch: int) -> Tuple[Network, List[Known]]:
    """Measured by a process of its own, which loads MXNet."""
    if not options.json:
        print(f"Measuring {options.model} on one device of this machine (some 15 s) ...", file=sys.stderr)
    program = [sys.executable, "-m", "mxdp.experiments.predict.measured"]
    words = [*program, options.model, str(batch), options.kind, options.input]
    # One device doesn't need more copies of MXNet's temporary space; ResNet-18 would fill a hundred of them.
    environment = {**process.unprepared(), "MXNET_CPU_TEMP_COPY": str(process.MXNET_TEMP_COPY)}
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        raise MxdpError(f"measuring {options.model} took more than {LONGEST:g} s; give --speed instead") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise MxdpError(f"{options.model} can't be measured here: {last}; give --speed, samples a second, instead")
    measured = inputs.loads(done.stdout)
    network, _ = inputs.network_of(measured, Path(options.model))
    if options.save:
        write_beside(options.save, done.stdout)
    name, step = network.name, f"{1e3 * (network.passes(batch) + network.update):.4g} ms of batch {batch}"
    known = [
        Known(f"{name}: shares of its layers", "by their operations", ASSUMED),
        Known(f"{name}: a step on one device", step, HERE, f"from {measured['measured']}"),
        Known(f"{name}: of it, whatever the batch", f"{1e3 * network.fixed:.3g} ms", HERE),
        Known(f"{name}: of it, the update", f"{1e3 * network.update:.3g} ms", HERE),
        Known("spread of a step", f"{network.spread:.1%}", HERE, "as of a normal distribution: assumed"),
    ]
    return network, known[1:] if options.model in MEASURED else known


def _print(
    title: str, headings: Sequence[str], rows: List[List[str]], numbers: Sequence[str] = (), below: str = ""
) -> None:
    """Print a table, and the sentences ``below`` it. ``numbers``: the headings of columns of numbers."""
    from rich.console import Console
    from rich.table import Table

    table, console = Table(box=None, pad_edge=False, title=title, title_justify="left"), Console(highlight=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in numbers else "left", no_wrap=heading in numbers)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if below:
        console.print(f"\n{below}", markup=False)


def _show_published(as_json: bool) -> None:
    figures = published.figures()
    if as_json:
        print(json.dumps([{**figure._asdict(), "off": figure.off} for figure in figures], indent=2))
        return
    words = "Sources: --json, and docs/predict.md. Nothing in the model is tuned to these figures."
    headings = published.HEADINGS
    _print("", headings, [figure.cells() for figure in figures], headings[1:], f"{published.how_far_off()}\n{words}")


def _show_memory(asked: memory.Memory, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asked.as_json(), indent=2))
        return
    title = f"{asked.model}, {asked.dtype}, on {plural(asked.devices, 'device')}"
    below = (
        f"{asked.answer}\nIn shards: ZeRO 1 the state, 2 the gradients, too, 3 the parameters, too (FSDP). "
        "Activations: the outputs of the layers, at least; gathered: the largest layer, whole on each device while it "
        "is computed. What is unknown (–) is not in 'all'."
    )
    _print(title, memory.HEADINGS, asked.cells(), memory.HEADINGS[1:-1], below)


def _show_published_memory(as_json: bool) -> None:
    figures = memory.published()
    if as_json:
        print(json.dumps([{**figure._asdict(), "off": figure.off} for figure in figures], indent=2))
        return
    headings = ("figure", "published", "here", "off")
    _print("", headings, [figure.cells() for figure in figures], headings[1:], "Sources: --json, and docs/predict.md.")

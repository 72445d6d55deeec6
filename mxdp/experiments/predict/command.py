"""``python -m mxdp.experiments predict``: what it asks, and what it shows."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from mxdp import process
from mxdp.errors import MxdpError, UsageError
from mxdp.experiments.predict import inputs
from mxdp.experiments.predict.inputs import ASSUMED, GIVEN, HERE, PUBLISHED, Known
from mxdp.experiments.predict.published import Figure, figures, summary
from mxdp.experiments.predict.ways import Compared, compared, fastest, scaling
from mxdp.experiments.show import style
from mxdp.plans.scaling.cluster import Cluster
from mxdp.plans.scaling.step import Network
from mxdp.plans.show.files import check_file, write_beside

BATCH, DEVICES, NODES = 64, 8, 1
MOST_DEVICES = 65536
MEASURED = ("lenet", "resnet18")
"""Networks that are measured here if nothing says how fast a device is; so is a symbol."""
LONGEST = 300.0
"""Seconds of a measurement."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "--model",
        default="lenet",
        metavar="NET",
        help="lenet (default), resnet18, resnet50, resnet101 or vgg16; a symbol that MXNet exported (.json); a list of "
        "layers (.toml)",
    )
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


def main(options: argparse.Namespace) -> None:
    """Predict, and show it.

    Raises:
        UsageError: something that was asked for can't be.
        MxdpError: a device can't be measured here.
    """
    if options.published:
        _show_published(figures(), options.json)
        return
    for name in ("picture", "html", "save"):
        if getattr(options, name):
            check_file(getattr(options, name))
    cluster, known, speeds, source = _cluster(options)
    batch = inputs.whole(options.batch, "--batch")
    network, more = _network(options, speeds, source, batch)
    rows = compared(network, cluster, batch)
    curves = scaling(network, cluster, batch)
    answer = said(network, cluster, rows)
    if options.picture:
        from mxdp.experiments.predict.picture import draw

        write_beside(options.picture, draw(network, curves, options.picture.suffix[1:]))
    if options.html:
        from mxdp.experiments.predict.page import page

        write_beside(options.html, page(network, cluster, rows, curves, [*known, *more], answer))
    if options.json:
        print(json.dumps(_as_json(network, cluster, batch, rows, curves, [*known, *more], answer), indent=2))
    else:
        _show(network, cluster, batch, rows, [*known, *more], answer)


def _cluster(options: argparse.Namespace) -> Tuple[Cluster, List[Known], Mapping[str, float], str]:
    """The machine; what is known of it; samples a second of one of its devices, by network; and who says so."""
    speeds: Mapping[str, float] = {}
    source = ""
    if options.machine:
        found = inputs.machine(options.machine)
        cluster, known, speeds, source = found.cluster, list(found.known), found.samples_per_second, found.source
    else:
        (inside, one), (between, other) = inputs.link("nvlink", "inside"), inputs.link("100gbe", "between")
        cluster = Cluster(DEVICES, NODES, inside, between)
        known = [*one, *other, *inputs.how_it_works(cluster, ASSUMED)]
    changes: Dict[str, Any] = {}
    for name, text in (("inside", options.inside), ("between", options.link)):
        if text is not None:
            changes[name], numbers = inputs.link(text, name)
            known = [each for each in known if not each.what.startswith(name)] + numbers
    for name in ("devices", "nodes"):
        if getattr(options, name) is not None:
            changes[name] = inputs.whole(getattr(options, name), f"--{name}")
    cluster = replace(cluster, **changes)
    if cluster.count > MOST_DEVICES:
        raise UsageError(f"--devices and --nodes make {cluster.count:,} devices: the most are {MOST_DEVICES:,}")
    if cluster.nodes == 1:
        known = [each for each in known if not each.what.startswith("between")]
    return cluster, known, speeds, source


def _network(
    options: argparse.Namespace, speeds: Mapping[str, float], source: str, batch: int
) -> Tuple[Network, List[Known]]:
    try:
        shape = tuple(inputs.whole(int(each), "--input") for each in options.input.split(","))
    except ValueError:
        raise UsageError(f"--input {options.input}: give channels, height and width, as in 3,224,224") from None
    if options.speed is not None:
        inputs.number(options.speed, "--speed, samples a second,", zero=False)
    rate, mark = (options.speed, GIVEN) if options.speed else (speeds.get(options.model), PUBLISHED)
    found, timed = inputs.network(options.model, rate, shape)
    if rate is None and (options.model in MEASURED or options.model.endswith(".json")):
        return _measured(options, batch)
    if options.save:
        raise UsageError(
            f"--save writes a network that was measured here: {', '.join(MEASURED)} or a symbol, without --speed"
        )
    if timed and options.speed:
        raise UsageError(f"{options.model} has the times of its layers, so --speed has no effect: leave it out")
    if timed:
        words = inputs.read_toml(Path(options.model)).get("measured")
        source = f"{options.model}, from {words}" if words else options.model
        return found, [Known(f"{found.name}: times of its layers", f"{len(found.layers)} layers", GIVEN, source)]
    if rate is None:
        raise UsageError(
            f"nobody has said how fast one device trains {options.model}: give --speed, samples a second, or a "
            f"--machine that says so; {', '.join(MEASURED)} and symbols (.json) can be measured here"
        )
    return found, [
        Known(f"{found.name}: one device", f"{rate:g} samples/s", mark, "" if mark == GIVEN else source),
        Known(f"{found.name}: shares of its layers", "by their operations", ASSUMED),
        Known("spread of a step", "none", ASSUMED),
    ]


def _measured(options: argparse.Namespace, batch: int) -> Tuple[Network, List[Known]]:
    """Measured by a process of its own, which loads MXNet."""
    if not options.json:
        print(f"Measuring {options.model} on one device of this machine (some 15 s) ...", file=sys.stderr)
    words = [
        sys.executable,
        "-m",
        "mxdp.experiments.predict.measured",
        options.model,
        str(batch),
        options.kind,
        options.input,
    ]
    # One device doesn't need more copies of MXNet's temporary space; ResNet-18 would fill a hundred of them.
    environment = {**process.unprepared(), "MXNET_CPU_TEMP_COPY": str(process.MXNET_TEMP_COPY)}
    try:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        raise MxdpError(f"measuring {options.model} took more than {LONGEST:g} s; give --speed instead") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise MxdpError(f"{options.model} can't be measured here: {last}; give --speed, samples a second, instead")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "measured.toml"
        file.write_text(done.stdout, encoding="utf-8")
        found, _ = inputs.network(str(file))
        steps = inputs.read_toml(file)["measured"]
    if options.save:
        write_beside(options.save, done.stdout)
    seconds = found.passes(batch) + found.update
    shares = [Known(f"{found.name}: shares of its layers", "by their operations", ASSUMED)]
    return found, [
        *shares * (options.model not in MEASURED),
        Known(f"{found.name}: a step on one device", f"{1e3 * seconds:.4g} ms of batch {batch}", HERE, f"from {steps}"),
        Known(f"{found.name}: of it, whatever the batch", f"{1e3 * found.fixed:.3g} ms", HERE),
        Known(f"{found.name}: of it, the update", f"{1e3 * found.update:.3g} ms", HERE),
        Known("spread of a step", f"{found.spread:.1%}", HERE, "as of a normal distribution: assumed"),
    ]


def said(network: Network, cluster: Cluster, rows: Sequence[Compared]) -> str:
    """The answer in one sentence."""
    if cluster.count == 1:
        return f"One device has nothing to sum: {network.name} takes {1e3 * rows[0].found.seconds:.3g} ms a step."
    ring = next(row for row in rows if row.way.allreduce == "ring")
    best = fastest(row for row in rows if _plain(row))
    text = f"On {cluster} {network.name} reaches {ring.found.efficiency:.0%} of linear with a ring, "
    text += "and loses nothing" if ring.found.limit == "nothing" else f"limited by {_because(ring.found.limit)}"
    if best is ring:
        return f"{text}; no other all-reduce is faster."
    return f"{text}; with {best.way.allreduce} {best.found.efficiency:.0%}."


def _plain(row: Compared) -> bool:
    way = row.way
    return way.accumulate == way.stages == 1 and not way.shard_optimizer


def _because(limit: str) -> str:
    known = {
        "latency": "the starts of messages",
        "bandwidth": "the bytes of messages",
        "sums": "the sums",
        "the slowest": "the slowest of all devices",
        "Python and shared cores": "Python, and devices that share the cores",
    }
    return known[limit]


def _show(
    network: Network, cluster: Cluster, batch: int, rows: Sequence[Compared], known: Sequence[Known], answer: str
) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    title = f"{network.name} on {cluster}, batch {batch} a device"
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    table.add_column("way")
    for heading in ("ms", "samples/s", "of linear"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("limited by")
    for row in rows:
        own = row.found
        numbers = (style.number(1e3 * own.seconds), style.number(own.samples / own.seconds), f"{own.efficiency:.0%}")
        table.add_row(row.title, *numbers, own.limit)
    console.print(table)
    console.print(f"\n{answer}\n", markup=False)
    start = Table(box=None, pad_edge=False, title="What this starts from", title_justify="left")
    for heading in ("number", "value", "is"):
        start.add_column(heading)
    for each in known:
        start.add_row(each.what, each.value, each.mark + (f": {each.source}" if each.source else ""))
    console.print(start)


def _show_published(found: Sequence[Figure], as_json: bool) -> None:
    if as_json:
        print(json.dumps([{**asdict(each), "off": each.off} for each in found], indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("figure")
    for heading in ("published", "predicted", "off"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in found:
        table.add_row(each.what, *each.in_words())
    console = Console(highlight=False)
    console.print(table)
    words = "Sources: --json, and docs/predict.md. Nothing in the model is tuned to these figures."
    console.print(f"\n{summary()}\n{words}", markup=False)


def _as_json(
    network: Network,
    cluster: Cluster,
    batch: int,
    rows: Sequence[Compared],
    curves: Dict[str, List[Tuple[int, float]]],
    known: Sequence[Known],
    answer: str,
) -> Dict[str, Any]:
    return {
        "network": network.name,
        "parameters": network.parameters,
        "devices": cluster.devices,
        "nodes": cluster.nodes,
        "batch": batch,
        "answer": answer,
        "ways": [
            {
                "way": row.title,
                "seconds": row.found.seconds,
                "samples_per_second": row.found.samples / row.found.seconds,
                "efficiency": row.found.efficiency,
                "limit": row.found.limit,
                "alone_seconds": row.found.alone,
                "lost_seconds": row.found.lost,
            }
            for row in rows
        ],
        "scaling": {name: [{"devices": n, "speedup": value} for n, value in points] for name, points in curves.items()},
        "known": [asdict(each) for each in known],
    }

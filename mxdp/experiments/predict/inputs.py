"""What a prediction starts from: networks and machines, from files and by name, each number with where it is from.

What is wrong in a name, an option or a file is a UsageError.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from mxdp.errors import UsageError, did_you_mean
from mxdp.experiments.predict.checked import checked_number, count, only, read, whole
from mxdp.experiments.predict.symbols import activations_of_symbol, layers_of_symbol
from mxdp.plans.cost.cluster import Cluster
from mxdp.plans.cost.layer_lists import NETWORKS, shared_out
from mxdp.plans.cost.link import Link
from mxdp.plans.cost.step import Network, TimedLayer

MACHINES = Path(__file__).with_name("machines")
HERE = "calibrated here"
PUBLISHED = "published"
ASSUMED = "assumed"
GIVEN = "given"

LINKS: Mapping[str, Mapping[str, Any]] = {
    "nvlink": dict(
        latency=10e-6,
        bandwidth=150e9,
        source="NVIDIA, Tesla V100 whitepaper (2017): 150 GB/s in each direction",
    ),
    "pcie": dict(
        latency=10e-6,
        bandwidth=16e9,
        source="Dive into Deep Learning, 'Hardware': PCIe 3.0 with 16 lanes",
    ),
    "10gbe": dict(latency=50e-6, bandwidth=1.25e9),
    "100gbe": dict(latency=15e-6, bandwidth=12.5e9),
}
"""Links by name, as in a machine's file; Ethernet says its bandwidth in its name."""
USUAL = {"devices": 8, "nodes": 1, "inside": "nvlink", "between": "100gbe"}
"""The machine if none is named."""
MODEL = "lenet"
"""The network if none is named."""
MOST_DEVICES = 65536
STEP = ("fixed", "update", "python", "spread")
NETWORK = ("name", "measured", "activations", "step", "layer")
LAYER = ("name", "operations", "forward", "backward", "parameters", "outputs")
"""What a file may say of a network, of its step and of a layer."""
MACHINE = ("devices", "nodes", "inside", "between", "add", "samples_per_second", "overlap", "cores")
LINK = ("latency", "bandwidth", "source")
ADD = ("seconds_a_byte", "source")
"""What a file may say of a machine, of its links and of a sum."""


class Known(NamedTuple):
    """A number that a prediction starts from: what it is, its value in words, its mark and its source."""

    what: str
    value: str
    mark: str
    source: str = ""

    def cells(self) -> List[str]:
        """A row of a table."""
        return [self.what, self.value, f"{self.mark}: {self.source}" if self.source else self.mark]


class KnownMachine(NamedTuple):
    """A cluster, what is known of it, and the samples a second of one of its devices, by network, with their source."""

    cluster: Cluster
    known: List[Known]
    samples_per_second: Mapping[str, float]
    source: str


def _link(link: Any, where: str, file: str) -> Tuple[Link, List[Known]]:
    """A link ``inside`` a node or ``between`` nodes: a table of ``file``, a name, or ``ALPHA,BETA``."""
    if isinstance(link, str):
        table = LINKS.get(link)
        mark = GIVEN
    else:
        table = only(link, LINK, f"{file}: [{where}]")
        mark = ASSUMED
    source = ""
    start = GIVEN
    if table is None:
        known = _link_of(link)
    else:
        latency = checked_number(table.get("latency"), f"{file}: [{where}] latency")
        bandwidth = checked_number(table.get("bandwidth"), f"{file}: [{where}] bandwidth")
        known = Link(latency, 1 / bandwidth if bandwidth else 0.0)
        source = str(table.get("source", ""))
        start = ASSUMED
    if source:
        mark = PUBLISHED
    speed = f"{1e-9 / known.beta:.4g} GB/s" if known.beta else "unlimited"
    return known, [
        Known(f"{where}: bandwidth", speed, mark, source),
        Known(f"{where}: start of a message", f"{known.alpha * 1e6:.3g} us", start),
    ]


def _link_of(words: str) -> Link:
    """A link that is given as ``ALPHA,BETA``."""
    try:
        return Link(*(checked_number(float(part), words) for part in words.split(",")))
    except (ValueError, TypeError, UsageError):
        raise UsageError(
            f"link {words!r}: give seconds to start a message and seconds a byte, as in 1e-5,8e-11, or a name; "
            f"{did_you_mean(words, list(LINKS))}"
        ) from None


def sample(sides: Optional[str]) -> Optional[Tuple[int, ...]]:
    """The shape of a sample from ``--input``."""
    if sides is None:
        return None
    try:
        numbers = [int(side) for side in sides.split(",")]
    except ValueError:
        raise UsageError(
            f"--input {sides}: give channels, height and width, as in 3,224,224"
        ) from None
    return tuple(whole(side, "--input: each side") for side in numbers)


def machine(name: Optional[str] = None, **options: Any) -> KnownMachine:
    """A machine of this package by its name, or from a TOML file; without a name the usual one. ``options``, unless
    they are None: its ``devices`` and ``nodes``, and in words its links ``inside`` and ``between``."""
    changes = {key: value for key, value in options.items() if value is not None}
    described = _described(name) if name else USUAL
    data = {"add": {}, "samples_per_second": {}, **described, **changes}

    def counted(key: str) -> int:
        return whole(data[key], f"--{key}" if key in changes else f"{name}: {key}")

    devices = counted("devices")
    nodes = counted("nodes")
    if devices * nodes > MOST_DEVICES:
        raise UsageError(
            f"--devices and --nodes make {devices * nodes:,} devices: the most are {MOST_DEVICES:,}"
        )
    inside, of_inside = _link(data["inside"], "inside", str(name))
    between, of_between = _link(data["between"], "between", str(name))
    nothing = "has no effect: there is nothing to link; leave it out, or give"
    if "inside" in changes and devices == 1:
        raise UsageError(f"--inside {nothing} --devices")
    if "between" in changes and nodes == 1:
        raise UsageError(f"--link {nothing} --nodes")
    add = data["add"]
    seconds = checked_number(add.get("seconds_a_byte", 0.0), f"{name}: [add] seconds_a_byte")
    rates = dict(data["samples_per_second"])
    source = str(rates.pop("source", ""))
    for net, rate in rates.items():
        checked_number(rate, f"{name}: [samples_per_second] {net}", zero=False)
    cores = whole(data["cores"], f"{name}: cores") if "cores" in data else None
    overlap = data.get("overlap", True)
    if type(overlap) is not bool:
        raise UsageError(
            f"{name}: overlap, whether sums run beside the backward pass, is true or false, not {overlap!r}"
        )
    known = of_inside
    if nodes > 1:
        known += of_between
    mark = PUBLISHED if add else ASSUMED
    a_byte = f"{seconds * 1e12:.3g} ps a byte"
    known.append(Known("a sum", a_byte, mark, str(add.get("source", ""))))
    mark = GIVEN if "overlap" in data or "cores" in data else ASSUMED
    beside = "yes" if overlap else "no"
    known.append(Known("sums run beside the backward pass", beside, mark))
    sharing = str(cores or "none: each has its own")
    known.append(Known("cores that a node's devices share", sharing, mark))
    cluster = Cluster(devices, nodes, inside, between, seconds, overlap, cores)
    return KnownMachine(cluster, known, rates, source)


def _described(name: str) -> Mapping[str, Any]:
    """What the machine's file says."""
    built_in = {path.stem: path for path in MACHINES.glob("*.toml")}
    path = built_in.get(name, Path(name))
    if not path.is_file():
        raise UsageError(
            f"--machine {name}: there is no such file or machine; {did_you_mean(name, sorted(built_in))}"
        )
    data = only(read(path), MACHINE, f"{path}: a machine")
    add = data.get("add", {})
    rates = data.get("samples_per_second", {})
    tables = [data.get("inside"), data.get("between"), add, rates]
    known = {"devices", "nodes"} <= set(data)
    if not known or not all(isinstance(table, dict) for table in tables):
        raise UsageError(
            f"{path}: a machine has devices, nodes, [inside] and [between], each with latency and bandwidth; it may "
            "have [add] and [samples_per_second]"
        )
    only(add, ADD, f"{path}: [add]")
    for net in rates:
        if net not in (*NETWORKS, "source") and not net.endswith((".json", ".toml")):
            names = did_you_mean(net, [*NETWORKS, "source"])
            raise UsageError(
                f"{path}: [samples_per_second] has networks of --model, and no {net!r}; {names}"
            )
    return data


def known_network(
    name: str, samples_per_second: Optional[float] = None, shape: Optional[Tuple[int, ...]] = None
) -> Tuple[Network, str]:
    """A network by its name, or from a file: a symbol that MXNet exported (JSON), or a list of layers (TOML). And where
    its times are from, if the file has any.

    ``samples_per_second``: of one device, for a network without its own times. ``shape``: of a sample, of a symbol.
    """
    path = Path(name)
    symbol_file = path.suffix == ".json" and name not in NETWORKS
    if shape and not symbol_file:
        raise UsageError(f"--input has no effect on {name}, which says its own sizes: leave it out")
    if name in NETWORKS:
        network = NETWORKS[name]
    elif not path.is_file():
        raise UsageError(
            f"--model {name}: there is no such file or network; {did_you_mean(name, list(NETWORKS))}"
        )
    elif symbol_file:
        symbol = read(path, json.loads, "the JSON of a symbol")
        if not shape:
            raise UsageError(
                f"--model {name}: it doesn't say how large a sample is: give --input, as in 3,224,224"
            )
        layers = tuple(layers_of_symbol(symbol, name, shape))
        activations = activations_of_symbol(symbol, name, shape)
        network = Network(path.stem.replace("-symbol", ""), layers, activations=activations)
    else:
        data = read(path)
        network, timed = network_of(data, path)
        if timed and "measured" in data:
            return network, f"{name}, from {data['measured']}"
        if timed:
            return network, name
    if not any(layer.forward for layer in network.layers):
        raise UsageError(
            f"{path}: all layers have 0 operations, so nothing says which takes how long"
        )
    return shared_out(network, 1 / samples_per_second if samples_per_second else 1.0), ""


def network_of(data: Mapping[str, Any], path: Path) -> Tuple[Network, bool]:
    """What the TOML file ``path`` says of a network, and whether in seconds; else its layers have operations."""
    only(data, NETWORK, f"{path}: a network")
    step = only(data.get("step", {}), STEP, f"{path}: [step]")
    tables = data.get("layer")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        tables = []
    layers = tuple(_layer(table, at, f"{path}: layer {at}") for at, table in enumerate(tables))
    activations = count(data.get("activations", 0), f"{path}: activations")
    network = Network(str(data.get("name", path.stem)), layers, activations=activations)
    if not network.parameters:
        raise UsageError(
            f"{path} has no layer with parameters: give [[layer]] tables, forward pass first"
        )
    counted = "operations" in tables[0]
    given = {"operations"} if counted else {"forward", "backward"}
    if any({"operations", "forward", "backward"} & set(table) != given for table in tables):
        raise UsageError(
            f"{path}: give every layer its operations, or forward and backward, in seconds a sample"
        )
    if counted:
        if step:
            raise UsageError(
                f"{path}: [step] has no effect on layers with operations: leave it out"
            )
        return network, False
    seconds: Dict[str, Any] = {
        key: checked_number(value, f"{path}: [step] {key}") for key, value in step.items()
    }
    network = replace(network, **seconds)
    if not network.passes(1) + network.update:
        raise UsageError(
            f"{path}: no layer takes any time; forward and backward are seconds a sample"
        )
    return network, True


def _layer(table: Mapping[str, Any], at: int, where: str) -> TimedLayer:
    """A layer of a file: with seconds, or in their place operations, which take twice as long backward."""
    only(table, LAYER, where)
    numbers = {}
    for key in ("operations", "forward", "backward"):
        numbers[key] = checked_number(table.get(key, 0), f"{where}, {key}")
    forward = numbers["forward"]
    backward = numbers["backward"]
    if "operations" in table:
        forward = numbers["operations"]
        backward = 2 * forward
    parameters = count(table.get("parameters", 0), f"{where}, parameters")
    outputs = count(table.get("outputs", 0), f"{where}, outputs")
    return TimedLayer(str(table.get("name", at)), forward, backward, parameters, outputs)


def as_toml(network: Network, measured: str) -> str:
    """A network as TOML, as :func:`known_network` reads it. ``measured``: what was measured, in words."""

    def lines(values: Mapping[str, Any]) -> str:
        return "".join(
            f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items()
        )

    step = {key: getattr(network, key) for key in STEP}
    first = dict(name=network.name, measured=measured, activations=network.activations)
    text = f"{lines(first)}\n[step]\n{lines(step)}"
    return text + "".join(f"\n[[layer]]\n{lines(vars(layer))}" for layer in network.layers)

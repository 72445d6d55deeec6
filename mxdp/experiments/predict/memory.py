"""``predict --memory``: what a device must hold in training, by copies and in shards, beside the room that it has."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from mxdp.errors import UsageError, plural
from mxdp.experiments.predict import inputs
from mxdp.experiments.show import style
from mxdp.plans.cost.memory import BYTES, STAGES, STATE, Held, held

TITLES = ("copies", "ZeRO 1", "ZeRO 2", "ZeRO 3")
HEADINGS = (
    "GB each",
    "params",
    "gradients",
    "state",
    "sum",
    "activations",
    "gathered",
    "all",
    "fits",
)
OPTIMIZERS = {"sgd": "SGD", "momentum": "momentum", "adam": "Adam"}
ROOM = 80.0
"""GB (10^9 bytes) of a device."""
WITHOUT_EFFECT = ("speed", "link", "inside", "save", "picture", "html")
"""Options that have nothing to do with memory."""


class ZeroStage(NamedTuple):
    """One of the ways. ``activations``, ``gathered``: bytes; None if no list of layers says them."""

    title: str
    held: Held
    activations: Optional[float]
    gathered: Optional[float]

    @property
    def bytes(self) -> float:
        """All that is known."""
        return self.held.together + (self.activations or 0) + (self.gathered or 0)


class Memory(NamedTuple):
    """What each of ``devices`` devices, with ``room`` bytes, holds of a model."""

    model: str
    parameters: float
    optimizer: str
    dtype: str
    devices: int
    room: float
    stages: List[ZeroStage]

    @property
    def answer(self) -> str:
        """In one sentence."""
        copies, sharded = (f"{self.stages[stage].held.together / 1e9:.4g}" for stage in (0, 3))
        fit = next((stage.title.partition(":")[0] for stage in self.stages if stage.bytes <= self.room), "")
        return (
            f"{self.model} with {OPTIMIZERS[self.optimizer]} on {plural(self.devices, 'device')} of "
            f"{self.room / 1e9:g} GB: {copies} GB each by copies, {sharded} GB fully sharded; "
            f"{f'the first that fits is {fit}' if fit else 'none fits'}."
        )

    def cells(self) -> List[List[str]]:
        """Rows under ``HEADINGS``."""
        return [
            [
                stage.title,
                *(_gigabytes(value) for value in (*stage.held, stage.held.together, stage.activations, stage.gathered)),
                _gigabytes(stage.bytes),
                "yes" if stage.bytes <= self.room else "no",
            ]
            for stage in self.stages
        ]

    def as_json(self) -> Dict[str, Any]:
        """All numbers, in bytes."""
        stages = [
            {
                "stage": number,
                **stage.held._asdict(),
                "activations": stage.activations,
                "gathered": stage.gathered,
                "bytes": stage.bytes,
                "fits": stage.bytes <= self.room,
            }
            for number, stage in enumerate(self.stages)
        ]
        return {"answer": self.answer, **self._asdict(), "stages": stages}


def _gigabytes(nbytes: Optional[float]) -> str:
    return "–" if nbytes is None else style.number(nbytes / 1e9) if nbytes else "0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``--memory``."""
    parser.add_argument("--memory", action="store_true", help="what a device must hold in training; for it alone:")
    parser.add_argument("--parameters", type=float, metavar="N", help="of the model, as in 7e9, in place of --model")
    parser.add_argument("--optimizer", metavar="NAME", help=f"{', '.join(STATE)} (adam)")
    parser.add_argument("--dtype", metavar="NAME", help=f"{', '.join(BYTES)} (float32)")
    parser.add_argument("--room", type=float, metavar="GB", help=f"of a device ({ROOM:g})")


def check(options: argparse.Namespace) -> None:
    """Raise a UsageError for options that would have no effect."""
    if options.memory:
        stray = [name for name in WITHOUT_EFFECT if getattr(options, name) is not None]
        stray += ["kind"] if options.kind != "auto" else []
        words = "leave it out, or leave --memory out"
    else:
        stray = [name for name in ("parameters", "optimizer", "dtype", "room") if getattr(options, name) is not None]
        words = "it is of --memory, which was not given"
    if stray:
        raise UsageError(f"--{stray[0]} has no effect {'with' if options.memory else 'without'} --memory: {words}")


def predicted(options: argparse.Namespace, devices: int, batch: int, shape: Tuple[int, ...]) -> Memory:
    """What the options ask. ``batch``: samples of a device; ``shape``: of one, for a symbol."""
    optimizer, dtype = (
        _chosen(getattr(options, name) or usual, name, known)
        for name, usual, known in (("optimizer", "adam", STATE), ("dtype", "float32", BYTES))
    )
    room = ROOM if options.room is None else inputs.checked_number(options.room, "--room, GB of a device,", zero=False)
    if options.parameters is None:
        network, _ = inputs.known_network(options.model, shape=shape)
        name, parameters = network.name, float(network.parameters)
        layers = [(layer.outputs, layer.parameters) for layer in network.layers]
    else:
        if options.model != "lenet":
            raise UsageError("--parameters and --model both say how large the model is: give one of them")
        parameters, layers = inputs.checked_number(options.parameters, "--parameters", zero=False), []
        billions = f"{parameters / 1e9:g} billion" if parameters >= 1e9 else f"{parameters:,.10g}"
        name = f"{billions} parameters"
    stages = []
    for stage in STAGES:
        activations = gathered = None
        if layers:
            activations = BYTES[dtype] * batch * float(sum(outputs for outputs, _ in layers))
            gathered = BYTES[dtype] * float(max(count for _, count in layers)) if stage == 3 else 0.0
        stages.append(
            ZeroStage(TITLES[stage], held(parameters, devices, stage, optimizer, dtype), activations, gathered)
        )
    return Memory(name, parameters, optimizer, dtype, devices, 1e9 * room, stages)


def _chosen(value: str, name: str, known: Any) -> str:
    if value not in known:
        raise UsageError(f"--{name} {value}: it is {', '.join(known)}; give one of them")
    return value


class Published(NamedTuple):
    """A figure that was published, in GB on each device, and ours."""

    what: str
    published: float
    ours: float
    source: str

    @property
    def off(self) -> float:
        """How much ours is higher, as a share."""
        return self.ours / self.published - 1

    def cells(self) -> List[str]:
        """A row of a table."""
        return [self.what, f"{self.published:g} GB", f"{style.number(self.ours)} GB", f"{self.off:+.1%}"]


def published() -> List[Published]:
    """All of them."""
    tables = inputs.read_toml(Path(__file__).with_name("published.toml"))["memory"]
    figures = []
    for table in tables:
        asked = (table[key] for key in ("parameters", "devices", "stage", "optimizer", "dtype"))
        figures.append(Published(table["what"], table["gigabytes"], held(*asked).together / 1e9, table["source"]))
    return figures

"""``predict --memory``: what a device must hold in training, by copies and in shards, beside the room that it has."""

from __future__ import annotations

import argparse
from typing import Any, Dict, List, Optional, Tuple

from mxdp.errors import UsageError, plural
from mxdp.experiments.predict import inputs
from mxdp.experiments.show import style
from mxdp.plans.cost.memory import BYTES, STATE, held

STAGES = ("copies", "ZeRO 1", "ZeRO 2", "ZeRO 3")
HEADINGS = ("GB each", "params", "gradients", "state", "sum", "activations", "gathered", "all", "fits")
OPTIMIZERS = {"sgd": "SGD", "momentum": "momentum", "adam": "Adam"}
ROOM = 80.0
"""GB (10^9 bytes) of a device."""
FOR_IT_ALONE = ("parameters", "optimizer", "dtype", "room")
WITHOUT_EFFECT = ("speed", "link", "inside", "save", "picture", "html", "kind")
"""Options that have nothing to do with memory."""


def check(options: argparse.Namespace) -> None:
    """Raise a UsageError for options that would have no effect."""
    words = "without --memory: it is of --memory, which was not given"
    if options.memory:
        words = "with --memory: leave it out, or leave --memory out"
    for name in WITHOUT_EFFECT if options.memory else FOR_IT_ALONE:
        if getattr(options, name) not in (None, "auto"):
            raise UsageError(f"--{name} has no effect {words}")


def predicted(
    options: argparse.Namespace, devices: int, batch: int, shape: Tuple[int, ...]
) -> Tuple[Dict[str, Any], List[List[str]]]:
    """What the options ask: a sentence and all numbers, in bytes; and rows under ``HEADINGS``. ``batch``: samples of a
    device; ``shape``: of one, for a symbol. What no list of layers says is None."""
    optimizer, dtype = options.optimizer or "adam", options.dtype or "float32"
    for name, value, known in (("optimizer", optimizer, STATE), ("dtype", dtype, BYTES)):
        if value not in known:
            raise UsageError(f"--{name} {value}: it is {', '.join(known)}; give one of them")
    room = ROOM if options.room is None else inputs.checked_number(options.room, "--room, GB of a device,", zero=False)
    activations: Optional[float] = None
    largest: Optional[float] = None
    if options.parameters is None:
        network, _ = inputs.known_network(options.model, shape=shape)
        model, parameters = network.name, float(network.parameters)
        activations = float(BYTES[dtype] * batch * sum(layer.outputs for layer in network.layers))
        largest = float(BYTES[dtype] * max(layer.parameters for layer in network.layers))
    elif options.model != "lenet":
        raise UsageError("--parameters and --model both say how large the model is: give one of them")
    else:
        parameters = inputs.checked_number(options.parameters, "--parameters", zero=False)
        count = f"{parameters / 1e9:g} billion" if parameters >= 1e9 else f"{parameters:,.10g}"
        model = f"{count} parameters"
    stages, rows = [], []
    for stage, title in enumerate(STAGES):
        kept = held(parameters, devices, stage, optimizer, dtype)
        gathered = largest if stage == 3 or largest is None else 0.0
        nbytes = sum(kept.values()) + (activations or 0) + (gathered or 0)
        more = dict(activations=activations, gathered=gathered, bytes=nbytes, fits=nbytes <= 1e9 * room)
        stages.append(dict(stage=stage, **kept, **more))
        numbers = [*kept.values(), sum(kept.values()), activations, gathered, nbytes]
        rows.append([title, *map(_gigabytes, numbers), "yes" if more["fits"] else "no"])
    fit = next((f"the first that fits is {title}" for title, *_, fits in rows if fits == "yes"), "none fits")
    copies, sharded = (sum(held(parameters, devices, stage, optimizer, dtype).values()) / 1e9 for stage in (0, 3))
    answer = (
        f"{model} with {OPTIMIZERS[optimizer]} on {plural(devices, 'device')} of {room:g} GB: {copies:.4g} GB each by "
        f"copies, {sharded:.4g} GB fully sharded; {fit}."
    )
    asked = dict(model=model, parameters=parameters, optimizer=optimizer, dtype=dtype, devices=devices)
    return dict(answer=answer, **asked, room=1e9 * room, stages=stages), rows


def _gigabytes(nbytes: Optional[float]) -> str:
    return "–" if nbytes is None else style.number(nbytes / 1e9) if nbytes else "0"

"""What a device holds, over devices and by ZeRO's stage: what ``python -m mxdp.experiments predict --memory`` says."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Dict

from mxdp.errors import plural
from mxdp.experiments.predict import fits
from mxdp.live.drawn import bars
from mxdp.live.topic import Answer, Control, Settings, Topic
from mxdp.plans.cost.layer_lists import NETWORKS
from mxdp.plans.cost.training_memory import BYTES, STAGES, STATE

COUNTS = {
    "1e8": "100 million parameters",
    "1e9": "1 billion",
    "7e9": "7 billion",
    "7e10": "70 billion",
}
"""Models of which only the number of parameters is known."""
MODELS = {name: network.name for name, network in NETWORKS.items()}
MODELS.update(COUNTS)
NO_PARTS = ("stage", "bytes", "fits")
"""Of a stage's record; the others are bytes, or None where they are unknown."""
POWERS = [1 << power for power in range(11)]


def predicted(s: Settings, devices: int) -> Dict[str, Any]:
    """The answer of ``predict --memory --json``."""
    parameters = float(s["model"]) if s["model"] in COUNTS else None
    options = Namespace(**s, parameters=parameters, input=None)
    record, _ = fits.predicted(options, devices, s["batch"])
    return record


def parts(stage: Dict[str, Any]) -> Dict[str, float]:
    """GB of what a device holds."""
    return {kind: n / 1e9 for kind, n in stage.items() if n is not None and kind not in NO_PARTS}


def answer(s: Settings) -> Answer:
    """A stage over devices, and all stages."""
    stage = s["stage"]
    room = s["room"]
    title = fits.STAGES[stage]
    here = predicted(s, s["devices"])
    over = {}
    enough = []
    for devices in POWERS:
        held = predicted(s, devices)["stages"][stage]
        if held["fits"]:
            enough.append(plural(devices, "device"))
        if devices <= s["devices"]:
            over[plural(devices, "device")] = parts(held)
    every = {name: parts(held) for name, held in zip(fits.STAGES, here["stages"])}
    caption = f"Every stage on {plural(s['devices'], 'device')}, GB each"
    return Answer(
        said=here["answer"],
        question=f"Of 1, 2, 4, 8 ... devices with {room} GB, how many are enough for {title}?",
        truth=enough[0] if enough else "not even 1,024 devices",
        html=bars(f"{title} over devices, GB each", "on", over, room)
        + bars(caption, "stage", every, room),
        idle=("batch",) if s["model"] in COUNTS else (),
    )


TOPIC = Topic(
    "What must a device hold?",
    "Activations: all arrays that MXNet keeps for the backward pass. The line is the device's memory.",
    [
        Control("model", "Model", "7e9", list(MODELS), MODELS.__getitem__),
        Control("batch", "Batch of a device", 64, POWERS),
        Control("devices", "Devices", 8, POWERS),
        Control("stage", "ZeRO's stage", 3, STAGES),
        Control("optimizer", "Optimiser", "adam", list(STATE)),
        Control("dtype", "Numbers", "float32", list(BYTES)),
        Control("room", "Memory of a device", 80, [8, 16, 24, 40, 80, 141, 192], "{} GB".format),
    ],
    answer,
)

"""The fast training loop: a step with few Python calls, Python ahead of the devices, checkpoints."""

from mxdp.training.graph import BoundNet
from mxdp.training.loop import (
    History,
    Interrupted,
    copied_after_ctrl_c,
    mean_loss,
    train,
    train_steps,
)
from mxdp.training.setup import Epoch
from mxdp.training.step import RUN_AHEAD, TrainStep

__all__ = [
    "RUN_AHEAD",
    "BoundNet",
    "Epoch",
    "History",
    "Interrupted",
    "TrainStep",
    "copied_after_ctrl_c",
    "mean_loss",
    "train",
    "train_steps",
]

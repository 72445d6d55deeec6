"""The fast training loop: a step with few Python calls, Python ahead of the devices, checkpoints."""

from mxdp.training.history import Epoch, History, Interrupted
from mxdp.training.loop import train, train_epochs, train_steps
from mxdp.training.step import RUN_AHEAD, BoundNet, TrainStep

__all__ = [
    "RUN_AHEAD",
    "BoundNet",
    "Epoch",
    "History",
    "Interrupted",
    "TrainStep",
    "train",
    "train_epochs",
    "train_steps",
]

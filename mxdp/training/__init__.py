"""The fast training loop: a step with few Python calls, Python ahead of the devices, checkpoints."""

from mxdp.training.epochs import Epoch, History, Interrupted, copied_after_ctrl_c, train_epochs, train_steps
from mxdp.training.graph import BoundNet
from mxdp.training.loop import train
from mxdp.training.step import RUN_AHEAD, TrainStep, plain_step

__all__ = [
    "RUN_AHEAD",
    "BoundNet",
    "Epoch",
    "History",
    "Interrupted",
    "TrainStep",
    "copied_after_ctrl_c",
    "plain_step",
    "train",
    "train_epochs",
    "train_steps",
]

"""Sums over replicas: the same steps for every algorithm, planned on floor 0 and carried out here."""

from mxdp.collectives.allreduce import ALGORITHMS, allreduce
from mxdp.collectives.gradients import GradientSync

__all__ = ["ALGORITHMS", "GradientSync", "allreduce"]

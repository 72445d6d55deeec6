"""All-reduces and other collectives on MXNet arrays. :mod:`mxdp.plans` makes the plans; this package runs them."""

from mxdp.collectives.allreduce import AllReduce, allreduce
from mxdp.collectives.gradients import GradientSync
from mxdp.collectives.primitives import all_gather, broadcast, reduce_scatter
from mxdp.plans.collective.algorithms import ALGORITHMS

__all__ = [
    "ALGORITHMS",
    "AllReduce",
    "GradientSync",
    "all_gather",
    "allreduce",
    "broadcast",
    "reduce_scatter",
]

"""Trains the networks of ``strategies``, split twice."""

from mxdp.experiments.other_splits.work.strategies import oracle, set_up

__all__ = ["oracle", "set_up"]

"""Trains the wide net of ``strategies`` with the batches of ``layerwise``."""

from mxdp.experiments.other_splits.work.strategies import oracle, set_up

__all__ = ["oracle", "set_up"]

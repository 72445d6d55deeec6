"""Strategies that split a network (:mod:`mxdp.layers`) over devices: :class:`mxdp.parallel.strategy.Strategy`.

``data`` splits the batch, ``pipeline`` the list of layers, ``layerwise`` each layer, and ``tile`` the pictures.
``fully_sharded`` splits the batch, and each layer's parameters between two uses. ``combined`` splits the batch over
groups of devices, and the network by another strategy in each group. Every strategy gives the serial run's results.
"""

"""Five strategies to split a network over devices, all in the form of :class:`mxdp.parallel.strategy.Strategy`.

``data`` splits the batch, ``pipeline`` the list of layers, ``layerwise`` each layer, and ``tile`` the pictures.
``fully_sharded`` splits the batch, and what each device holds of a layer between two uses. The network is described
once (:mod:`mxdp.layers`). ``combined`` splits the batch over groups of devices, and lets another strategy split the
network in each group. Every strategy gives the results of the serial run. What a strategy moves and keeps is counted
beside it (:mod:`mxdp.parallel.strategy`).
"""

"""The ways to split a network over devices, each with the same form (:mod:`mxdp.parallel.strategy`).

``data`` cuts the batch, ``pipeline`` the list of layers, ``layerwise`` each layer, ``tile`` the pictures. The network
is described once (:mod:`mxdp.layers`), and every way gives what the serial run gives.
"""

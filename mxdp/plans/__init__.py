"""Floor 0: what will happen, as data. Pure Python, without arrays or MXNet.

One plan is printed for a lecture, given to the engine and used by the cost model, so the three always agree.
"""

"""Floor 0: what will happen, as data. Pure Python: no arrays, no MXNet.

What is printed for a lecture, what the engine is given, and what the cost model predicts all come from the same plan,
so they can't drift apart.
"""

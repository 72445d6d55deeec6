"""What the page ``live/`` shows: plans, costs and memory, answered in a browser by Python that was compiled for it.

Everything here needs Python's standard library alone. ``tools/live.py`` makes the page, and ``tools/live.html`` has its
script, which computes nothing.
"""

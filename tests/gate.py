import threading
import time

from mxdp.engine import EngineJob


class Gate(EngineJob):
    """Operators that use ``array`` and are pushed later wait until the gate opens, at most ``limit`` seconds."""

    def __init__(self, array, limit=300.0):
        self.opened, self._limit = threading.Event(), limit
        self._push((), (array,))

    def open(self):
        self.opened.set()

    def _call(self):
        self.opened.wait(self._limit)


class SlowReader(EngineJob):
    """Reads ``array`` for 0.2 seconds."""

    def __init__(self, array, unused):
        self.ended = False
        self._push([array], [unused])

    def _call(self):
        time.sleep(0.2)
        self.ended = True

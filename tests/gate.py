from mxdp.engine import EngineJob


class Gate(EngineJob):
    """Operators that use ``array`` and are pushed later wait until the gate opens, at most ``limit`` seconds."""

    def __init__(self, array, limit=300.0):
        super().__init__()
        self._limit = limit
        self._push((), (array,))

    def open(self):
        self._over.set()

    def _call(self):
        self._wait(self._limit)

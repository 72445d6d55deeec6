"""A rank of a :class:`.crew.Crew`: ``python -m mxdp.experiments.measure.rank MODULE:CLASS``.

An object of the class is made from the order that the child sends. It has a ``number``, and its methods are the
commands. Imports no MXNet itself.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection

from mxdp.errors import described
from mxdp.experiments.measure.crew import SOCKET


def main() -> None:
    """Connect, and obey until the child hangs up."""
    client = socket.socket(socket.AF_UNIX)
    client.connect(os.environ[SOCKET])
    connection = Connection(client.detach())
    with suppress(EOFError, ConnectionError):
        module, _, name = sys.argv[1].partition(":")
        rank = getattr(importlib.import_module(module), name)(connection.recv())
        connection.send((rank.number, os.getpid()))
        while True:
            command, arguments = connection.recv()
            try:
                answer, failed = getattr(rank, command)(*arguments), False
            except Exception as error:
                traceback.print_exc()
                answer, failed = described(error), True
            connection.send((answer, failed))


if __name__ == "__main__":
    main()

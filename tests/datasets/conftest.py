"""Made-up Fashion-MNIST files, and a server on this machine that delivers them well or badly."""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Callable, Dict, List, Tuple

import numpy as np
import pytest

from mxdp.datasets import fashion_mnist
from mxdp.datasets.fetch import KnownFile

REAL_DATA_DIR = os.environ.get("MXDP_DATA_DIR")


@pytest.fixture(autouse=True)
def _nothing_of_the_user(monkeypatch, tmp_path):
    """No test reads the user's folders or cache, and none goes to the network."""
    for name in ("MXDP_DATA_DIR", "MXDP_OFFLINE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))
    monkeypatch.setattr(fashion_mnist, "MIRRORS", ())


@pytest.fixture
def real_data_dir():
    if not REAL_DATA_DIR:
        pytest.skip("MXDP_DATA_DIR is not set: it names the folder that holds the real fashion-mnist/")
    return REAL_DATA_DIR


def idx(magic: int, values: np.ndarray) -> bytes:
    """An unpacked IDX file."""
    return struct.pack(f">{1 + values.ndim}I", magic, *values.shape) + values.astype(np.uint8).tobytes()


def known(name: str, data: bytes) -> KnownFile:
    return KnownFile(name, len(data), hashlib.sha256(data).hexdigest())


@pytest.fixture(scope="session")
def made_up():
    """A Fashion-MNIST with 50 and 20 samples: ``files``, ``contents`` (name -> bytes), ``pixels`` and ``labels``."""
    random = np.random.RandomState(7)
    contents, pixels, labels = {}, {}, {}
    for part, n in (("train", 50), ("t10k", 20)):
        pixels[part] = random.randint(0, 256, (n, 28, 28))
        labels[part] = random.randint(0, 10, n)
        contents[f"{part}-images-idx3-ubyte.gz"] = gzip.compress(idx(0x803, pixels[part]))
        contents[f"{part}-labels-idx1-ubyte.gz"] = gzip.compress(idx(0x801, labels[part]))
    files = tuple(known(name, data) for name, data in contents.items())
    return SimpleNamespace(files=files, contents=contents, pixels=pixels, labels=labels)


@pytest.fixture
def put(made_up):
    """Writes the made-up files into a folder."""

    def into(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in made_up.contents.items():
            (folder / name).write_bytes(data)
        return folder

    return into


Behaviour = Callable[[BaseHTTPRequestHandler, bytes], None]


def whole(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    """A good server."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


@dataclass
class Server:
    """``requests`` lists the paths, in order of arrival."""

    address: str
    mirrors: Dict[str, Tuple[Dict[str, bytes], Behaviour]] = field(default_factory=dict)
    requests: List[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def mirror(self, name: str, contents: Dict[str, bytes], get: Behaviour = whole) -> str:
        """The address of a new mirror."""
        self.mirrors[name] = (contents, get)
        return f"{self.address}/{name}/"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests.append(handler.path[1:])
        mirror, _, name = handler.path[1:].partition("/")
        contents, get = self.mirrors[mirror]
        if name in contents:
            get(handler, contents[name])
        else:
            handler.send_error(404)


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            running.answer(self)

        def log_message(self, *args):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    http.block_on_close = False
    running = Server(f"http://127.0.0.1:{http.server_port}")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield running
    running.over.set()
    http.shutdown()
    http.server_close()
    thread.join(5)


@pytest.fixture
def whole_answer():
    return whole

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
from typing import Callable, Dict, List, Optional, Tuple

import numpy as np
import pytest

from mxdp.datasets import fashion_mnist
from mxdp.datasets.known_file import KnownFile

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


@pytest.fixture
def idx_file():
    return lambda magic, values: gzip.compress(idx(magic, np.asarray(values)))


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


Behaviour = Callable[[BaseHTTPRequestHandler, bytes], None]


def whole(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    """A good server: all of it, or the range that was asked for."""
    start = range_start(handler)
    if start is not None and start >= len(data):
        handler.send_error(416)
        return
    handler.send_response(200 if start is None else 206)
    if start is not None:
        handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
    body = data[start or 0 :]
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def range_start(handler: BaseHTTPRequestHandler) -> Optional[int]:
    asked = handler.headers.get("Range")
    return int(asked[len("bytes=") : -1]) if asked else None


@dataclass
class Server:
    """``requests`` lists (method, path, Range header) in order of arrival."""

    address: str
    mirrors: Dict[str, Tuple[Dict[str, bytes], Behaviour, bool]] = field(default_factory=dict)
    requests: List[Tuple[str, str, Optional[str]]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def mirror(self, name: str, contents: Dict[str, bytes], get: Behaviour = whole, hangs: bool = False) -> str:
        """The address of a new mirror; with ``hangs`` it takes every connection and says nothing."""
        self.mirrors[name] = (contents, get, hangs)
        return f"{self.address}/{name}/"

    def gets(self) -> List[Tuple[str, Optional[str]]]:
        return [(path, asked) for method, path, asked in self.requests if method == "GET"]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests.append((handler.command, handler.path[1:], handler.headers.get("Range")))
        mirror, _, name = handler.path[1:].partition("/")
        contents, get, hangs = self.mirrors[mirror]
        if hangs:
            self.over.wait(30)
        elif handler.command == "HEAD":
            handler.send_response(200)
            handler.end_headers()
        elif name not in contents:
            handler.send_error(404)
        else:
            get(handler, contents[name])


@pytest.fixture
def server():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            running.answer(self)

        do_HEAD = do_GET

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

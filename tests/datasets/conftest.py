"""Made-up Fashion-MNIST files, and a server on this machine that delivers them well or badly."""

import gzip
import hashlib
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pytest

from mxdp.datasets import fashion_mnist
from mxdp.datasets.fetch import KnownFile


@pytest.fixture(autouse=True)
def _nothing_of_the_user(monkeypatch, tmp_path):
    """No test reads the user's folders or cache, and none goes to the network."""
    for name in ("MXDP_DATA_DIR", "MXDP_OFFLINE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))
    monkeypatch.setattr(fashion_mnist, "MIRRORS", ())


@pytest.fixture
def small(monkeypatch, made_up):
    """The made-up files are the official ones."""
    monkeypatch.setattr(fashion_mnist, "FILES", made_up.files)
    return made_up


@pytest.fixture(scope="session")
def made_up():
    """A Fashion-MNIST with 50 and 20 samples: ``files``, ``contents`` (name -> bytes), ``pixels`` and ``labels``."""
    random = np.random.RandomState(7)
    made = SimpleNamespace(contents={}, pixels={}, labels={})
    for part, n in (("train", 50), ("t10k", 20)):
        made.pixels[part] = random.randint(0, 256, (n, 28, 28))
        made.labels[part] = random.randint(0, 10, n)
        for kind, magic, values in (
            ("images-idx3", 0x803, made.pixels[part]),
            ("labels-idx1", 0x801, made.labels[part]),
        ):
            head = struct.pack(f">{1 + values.ndim}I", magic, *values.shape)
            data = gzip.compress(head + values.astype(np.uint8).tobytes())
            made.contents[f"{part}-{kind}-ubyte.gz"] = data
    files = [KnownFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in made.contents.items()]
    made.files = tuple(files)
    return made


@pytest.fixture
def put(made_up):
    """Writes the made-up files into a folder."""

    def into(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in made_up.contents.items():
            (folder / name).write_bytes(data)
        return folder

    return into


@pytest.fixture
def server():
    """``mirror``: makes one, and returns its address; ``requests``: the paths, in order of arrival; ``over``: the end
    of the test."""
    mirrors = {}

    class Handler(BaseHTTPRequestHandler):
        def sends(self, data, length=None):
            """As a good server, if ``length`` is that of the data."""
            self.send_response(200)
            self.send_header("Content-Length", str(len(data) if length is None else length))
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()

        def do_GET(self):
            running.requests.append(self.path[1:])
            mirror, _, name = self.path[1:].partition("/")
            contents, get = mirrors[mirror]
            if name in contents:
                get(self, contents[name])
            else:
                self.send_error(404)

        def log_message(self, *args):
            pass

    def mirror(name, contents, get=Handler.sends):
        mirrors[name] = (contents, get)
        return f"{running.address}/{name}/"

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    http.block_on_close = False
    address = f"http://127.0.0.1:{http.server_port}"
    running = SimpleNamespace(address=address, mirror=mirror, requests=[], over=threading.Event())
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield running
    running.over.set()
    http.shutdown()
    http.server_close()
    thread.join(5)

"""Makes the page ``live/``, whose Python runs in the browser, and serves it on this machine until Ctrl-C.

Pyodide, a Python for browsers, is fetched from npm once, by its exact version and checksum. It lies beside the page,
which asks nothing of any other host.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import functools
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

try:
    from mxdp.errors import MxdpError
    from mxdp.live.page import topics
except ModuleNotFoundError as error:  # older ones read no TOML by themselves
    sys.exit(f"make live needs Python 3.11 or newer ({error}): make live PYTHON=python3.11")

VERSION = "314.0.7"
SHA512 = "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
"""As npm writes it."""
FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")


def pyodide() -> Path:
    """The archive of Pyodide, in ``build/``. Raises an MxdpError if it can't be fetched, or is another one."""
    archive = ROOT / "build" / f"pyodide-{VERSION}.tgz"
    if not archive.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise MxdpError(
                "npm is missing, which fetches Python for the browser (12 MB): install Node.js, which has it"
            )
        archive.parent.mkdir(exist_ok=True)
        words = [npm, "pack", "--silent", f"pyodide@{VERSION}", "--pack-destination", str(archive.parent)]
        done = subprocess.run(words, cwd=archive.parent, capture_output=True, text=True)
        if done.returncode:
            raise MxdpError(f"npm can't fetch pyodide {VERSION} ({done.stderr.strip()[-200:]}): is there a network?")
    checksum = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if checksum != SHA512:
        raise MxdpError(f"{archive} is not what was pinned (its SHA-512 is {checksum}): delete it, and try again")
    return archive


def build(folder: Path, measured: str) -> None:
    """Make the page in ``folder``. ``measured``: the address of the measured results, as seen from it. Raises an
    MxdpError without npm."""
    archive = pyodide()
    place = folder / "pyodide"
    place.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as packed:
        for name in FILES:
            member = packed.extractfile(f"package/{name}")
            assert member is not None
            (place / name).write_bytes(member.read())
    with zipfile.ZipFile(folder / "mxdp.zip", "w", zipfile.ZIP_DEFLATED) as code:
        for file in sorted((ROOT / "mxdp").rglob("*.*")):
            if file.suffix in (".py", ".html", ".toml"):
                code.write(file, file.relative_to(ROOT))
    data = json.dumps(topics()).replace("</", "<\\/")  # "</script>" must not end the script that holds the data
    page = (ROOT / "tools" / "live.html").read_text(encoding="utf-8")
    page = page.replace("[[MEASURED]]", measured).replace("[[TOPICS]]", data)  # whatever the data hold
    (folder / "index.html").write_text(page, encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make live", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=8000, help="default: 8000; 0: any that is free")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "live", help="default: build/live")
    options = parser.parse_args()
    try:
        build(options.out, "measured.txt")
        shutil.copy(ROOT / "experiments" / "README.md", options.out / "measured.txt")
        handler = functools.partial(SimpleHTTPRequestHandler, directory=str(options.out))
        server = ThreadingHTTPServer(("127.0.0.1", options.port), handler)
    except (MxdpError, OSError) as error:
        sys.exit(f"mxdp: {error}")
    print(f"http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it)", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()

"""Python's prompt in a terminal, into which a reader pastes what a page shows."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Mapping, NamedTuple

SECONDS = 120
# What the code prints goes to files: in the terminal it would stand between echoes and prompts.
STARTUP = """
import sys
sys.stdout, sys.stderr, echoed = open("stdout", "w"), open("stderr", "w"), open("echoed", "w")
sys.displayhook = lambda value: value is None or print(repr(value), file=echoed)
"""


class Session(NamedTuple):
    """What the code has written, which values of expressions the prompt shows, and all that the terminal has shown."""

    stdout: str
    stderr: str
    echoed: str
    shown: str


def paste(text: str, folder: Path, environ: Mapping[str, str]) -> Session:
    """Start this Python as a person would, paste ``text`` at the prompt, press Enter, and leave."""
    (folder / "startup.py").write_text(STARTUP, encoding="utf-8")
    environ = {**environ, "TERM": "xterm", "PYTHONSTARTUP": str(folder / "startup.py")}
    keyboard, terminal = pty.openpty()
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    child = subprocess.Popen([sys.executable], cwd=folder, env=environ, start_new_session=True, **streams)
    os.close(terminal)
    try:
        shown = _read(keyboard, b">>> ")
        pasted = text.encode()
        if b"\x1b[?2004h" in shown:  # the prompt of 3.13 wants to know what is pasted, and terminals tell it
            pasted = b"\x1b[200~" + pasted + b"\x1b[201~"
        os.write(keyboard, pasted + b"\nexit()\n")
        shown += _read(keyboard, None)
        child.wait(SECONDS)
    finally:
        child.kill()
        child.wait()
        os.close(keyboard)
    written = [(folder / name).read_text(encoding="utf-8") for name in ("stdout", "stderr", "echoed")]
    for name in ("stdout", "stderr", "echoed", "startup.py"):
        (folder / name).unlink()
    return Session(*written, shown.decode(errors="replace"))


def _read(keyboard: int, until: object) -> bytes:
    """What the terminal shows, up to these bytes or to its end."""
    shown, end = b"", time.monotonic() + SECONDS
    while time.monotonic() < end and not (until and until in shown):
        if not select.select([keyboard], [], [], 1)[0]:
            continue
        try:
            part = os.read(keyboard, 1 << 16)
        except OSError:  # Linux's end of a terminal that nobody holds any more
            part = b""
        if not part:
            break
        shown += part
    return shown

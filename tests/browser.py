"""A real browser for tests: Chromium, which its chromedriver moves by plain HTTP (W3C's WebDriver)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from urllib.request import Request, urlopen

PROGRAMS = ("chromium", "chromedriver")
MISSING = [name for name in PROGRAMS if not shutil.which(name)]
REASON = f"there is no {' and no '.join(MISSING)} here (Debian: apt-get install chromium chromium-driver)"
FLAGS = """
--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage --disable-smooth-scrolling
"""
# The private characters by which WebDriver names keys.
KEYS = {
    "Shift": "\ue008",
    "Control": "\ue009",
    "PageUp": "\ue00e",
    "PageDown": "\ue00f",
    "End": "\ue010",
    "Home": "\ue011",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
    "F5": "\ue035",
    "Tab": "\ue004",
    "Enter": "\ue007",
}
ALONE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
"""The browser reaches this machine alone."""


class Browser:
    """A window. ``folder``: an empty one for the browser's own files."""

    def __init__(self, folder: Path) -> None:
        self._driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        said = ""
        while "successfully on port" not in said:
            said = self._driver.stdout.readline()
            assert said, "chromedriver ended"
        self._url = f"http://127.0.0.1:{re.findall('on port ([0-9]+)', said)[0]}/session"
        options = {"args": [*FLAGS.split(), ALONE, f"--user-data-dir={folder}"], "binary": shutil.which("chromium")}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self._url += f"/{self._call('', {'capabilities': {'alwaysMatch': wanted}})['sessionId']}"

    def open(self, page: Path | str, width: int = 1280, height: int = 720) -> None:
        """Load the file, or what is at an address, in a window of that size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": size})
        self._call("/url", {"url": page if isinstance(page, str) else page.as_uri()})

    def log(self, kind: str) -> list:
        """What it has noted since it was last asked: "browser", of scripts; "performance", of the network."""
        return self._call("/se/log", {"type": kind})

    def run(self, script: str) -> object:
        """What this JavaScript returns in the page."""
        return self._call("/execute/sync", {"script": script, "args": []})

    def press(self, *keys: str) -> None:
        """Press the last key while the others are held, as a person would."""
        codes = [KEYS.get(key, key) for key in keys]
        down = [{"type": "keyDown", "value": code} for code in codes]
        up = [{"type": "keyUp", "value": code} for code in reversed(codes)]
        self._call("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": down + up}]})

    def close(self) -> None:
        """End the browser and its driver."""
        with urlopen(Request(self._url, method="DELETE")):
            pass
        self._driver.terminate()
        self._driver.wait(10)
        self._driver.stdout.close()

    def _call(self, path: str, asked: object) -> object:
        request = Request(f"{self._url}{path}", json.dumps(asked).encode(), {"Content-Type": "application/json"})
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

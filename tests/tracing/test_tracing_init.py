from __future__ import annotations

import subprocess
import sys


def test_timelines_pictures_and_sections_need_no_mxnet():
    code = (
        "import sys; from mxdp.tracing import Timeline, draw, section, split;"
        "assert not {'mxnet', 'matplotlib'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

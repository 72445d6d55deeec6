from __future__ import annotations

import subprocess
import sys

import pytest

from mxdp import tracing


def test_every_name_is_there():
    for name in tracing.__all__:
        assert getattr(tracing, name).__name__ == name
    assert set(tracing.__all__) == {*tracing._HOME, "section"}
    assert set(tracing.__all__) <= set(dir(tracing))
    with pytest.raises(AttributeError, match="no attribute 'recrod'; it has: "):
        _ = tracing.recrod


def test_timelines_pictures_and_sections_need_no_mxnet():
    code = (
        "import sys; from mxdp.tracing import Timeline, draw, read_trace, section, split;"
        "assert not {'mxnet', 'matplotlib'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

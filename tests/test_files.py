"""mxdp.files: a file is written whole or not at all."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxdp.errors import MxdpError, UsageError
from mxdp.files import check_file, write_beside

PLACES = st.sampled_from(["x", "new/x.y", "a/b/ö"])
CONTENT = st.text(st.characters(codec="utf-8")) | st.binary()


@given(before=st.none() | st.binary(), content=CONTENT, place=PLACES, fails=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_is_as_it_was_or_has_all_of_its_content_and_has_none_beside_it(before, content, place, fails, tmp_path):
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / place
    if before is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(before)
    write = Path.write_bytes

    def half(self, data):
        write(self, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    check_file(path)
    with pytest.MonkeyPatch.context() as patch:
        if fails:
            patch.setattr(Path, "write_bytes", half)
            with pytest.raises(MxdpError, match=r"can't be written \(No space left on device\); make room"):
                write_beside(path, content)
        else:
            write_beside(path, content)
    there = before if fails else content if isinstance(content, bytes) else content.encode()
    assert [each.read_bytes() for each in path.parent.iterdir()] == ([] if there is None else [there])


@pytest.mark.parametrize("path", [".", "..", os.sep])
def test_a_folder_is_no_file(path):
    with pytest.raises(UsageError, match="is a folder; give the name of a file in it"):
        check_file(Path(path))
    with pytest.raises(UsageError):
        write_beside(Path(path), "")

"""Files in a folder of checkpoints, whole and damaged; helpers of the tests in this folder."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile

import numpy as onp

from mxdp.processes.checkpoint_file import LOCK

HEADER = {"training": {"seed": 0}, "replicas": "1 device"}


def names(folder):
    """All files but the lock, which stays."""
    return sorted(path.name for path in folder.iterdir() if path.name != LOCK)


def numbered(*numbers):
    return [f"checkpoint-{number:06d}.npz" for number in numbers]


class RunsCode:
    def __reduce__(self):
        return print, ("code of the file runs",)


def npy(array):
    file = io.BytesIO()
    onp.save(file, array)
    return file.getvalue()


def crafted(facts=None, compression=zipfile.ZIP_STORED, says=0, **members):
    """Damage that has the right checksum: a file that somebody made, or another version. ``says``: the length of its
    last member, as the file claims it."""
    facts = json.dumps({**HEADER, "facts": {}}) if facts is None else facts

    def damage(path):
        with zipfile.ZipFile(path, "w", compression) as made:
            for name, content in {"facts": npy(facts), **members}.items():
                made.writestr(f"{name}.npy", content)
            made.filelist[-1].file_size = says or made.filelist[-1].file_size
        content = path.read_bytes()[:-2]
        path.write_bytes(content + b"\x40\0" + hashlib.sha256(content).hexdigest().encode())

    return damage


HUGE = npy(onp.ones(8)).replace(b"(8,), }" + b" " * 12, b"(8%s,), }" % (b"0" * 12))
CODE = onp.array([RunsCode()], dtype=object)
DAMAGED = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "foreign": lambda path: onp.savez(path, x=onp.ones(3)),
    "folder": lambda path: path.unlink() or path.mkdir(),
    "code": crafted(CODE),
    "code in an array": crafted(x=npy(CODE)),
    "code in a header": crafted(x=npy(onp.ones(8)).replace(b"(8,), }      ", b"print(1), }  ")),
    "nested JSON": crafted("[" * 200_000),
    "a list": crafted("[]"),
    "a list for the training": crafted(json.dumps({**HEADER, "training": [], "facts": {}})),
    "a list for the facts": crafted(json.dumps({**HEADER, "facts": []})),
    "no facts": crafted(json.dumps(HEADER)),
    "compressed, and no shorter": crafted(
        compression=zipfile.ZIP_DEFLATED, **{f"x{n}": npy(onp.ones(0)) for n in range(10)}
    ),
    "huge": crafted(x=HUGE),
    "huge, and it says so": crafted(x=HUGE, says=8 * 8 * 10**12 + 1000),
    "no array": crafted(x=b"x" * 100),
}

"""Fashion-MNIST: 60000 + 10000 pictures of clothes, from your own folder, from the cache, or from the network.

Source: H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning
Algorithms", 2017, https://github.com/zalandoresearch/fashion-mnist (MIT licence).
"""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import List, Optional, Union

import numpy as np

from mxdp.datasets.fetch import KnownFile, Notify, Progress, obtain
from mxdp.datasets.records import Dataset, Split
from mxdp.errors import DataError

FOLDER = "fashion-mnist"
DATA_DIR = "MXDP_DATA_DIR"
"""Environment variable: a folder that holds ``fashion-mnist/``."""

FILES = (
    KnownFile(
        "train-images-idx3-ubyte.gz",
        26421880,
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    ),
    KnownFile(
        "train-labels-idx1-ubyte.gz",
        29515,
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    ),
    KnownFile(
        "t10k-images-idx3-ubyte.gz",
        4422102,
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    ),
    KnownFile(
        "t10k-labels-idx1-ubyte.gz",
        5148,
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
)
"""The official files, with size and sha256. The authors' README gives md5 sums instead; files with those md5 sums have
these sha256 sums."""

MIRRORS = (
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
"""The authors' repository, Keras's copy (Keras checks it against the same sums), the authors' bucket (no HTTPS)."""

_SOME_FILES = f"{FILES[0].name} and the other three official files"

CLOTHES = (
    "t-shirt", "trouser", "pullover", "dress", "coat",
    "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip


def given_folder(data_dir: Optional[Union[str, Path]]) -> Optional[Path]:
    """The folder that the user named, by ``data_dir`` or by ``MXDP_DATA_DIR``; None without either."""
    named = data_dir or os.environ.get(DATA_DIR)
    return Path(named).expanduser() if named else None


def cache_root() -> Path:
    """The cache folder: ``$XDG_CACHE_HOME/mxdp`` if that variable is an absolute path, else ``~/.cache/mxdp``. Raises a
    DataError if the home folder is needed and there is none."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "mxdp"
    try:
        return Path.home() / ".cache" / "mxdp"
    except RuntimeError as error:
        raise DataError(
            "there is no home folder to keep a cache in; set XDG_CACHE_HOME to a folder"
        ) from error


def load_fashion_mnist(
    data_dir: Optional[Union[str, Path]], notify: Notify, progress: Optional[Progress] = None
) -> Dataset:
    """The official Fashion-MNIST, checked by sha256.

    A folder that the user named is only read: the files are in its ``fashion-mnist`` or in the folder itself. Otherwise
    the files are read from the cache. Missing or wrong ones are downloaded first; the call waits for that. Raises a
    DataError if the named folder lacks a file or has a wrong one, or if a file is not cached and its download failed.
    """
    named = given_folder(data_dir)
    if named is not None:
        folder = _folder_in(named)
        contents = _read_all(folder)
    else:
        folder = cache_root() / FOLDER
        try:
            contents = obtain(folder, FILES, MIRRORS, notify, progress)
        except DataError as error:
            raise DataError(f"{error}; by hand: put {_SOME_FILES} into {folder}") from error
    return Dataset(
        name="fashion-mnist",
        train=parse_split(contents[0], contents[1]),
        test=parse_split(contents[2], contents[3]),
        classes=CLOTHES,
        origin=f"Fashion-MNIST, the official files in {folder}",
    )


def parse_split(images: bytes, labels: bytes) -> Split:
    """A split from two gzipped IDX files, whose sha256 was checked. A header of 16 bytes precedes the pixels; one of
    8 bytes precedes the labels."""
    # Unpacking into one piece of the right size takes 0.6 of gzip's time.
    raw = zlib.decompress(images, wbits=31, bufsize=1 << 26)
    pixels = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 1, 28, 28)
    y = np.frombuffer(gzip.decompress(labels), np.uint8, offset=8)
    # Without the dtype NumPy divides in float64 and rounds, which takes twice as long.
    return Split(np.divide(pixels, 255, dtype=np.float32), y.astype(np.int32))


def _folder_in(named: Path) -> Path:
    if (named / FOLDER).is_dir():
        return named / FOLDER
    if any((named / file.name).exists() for file in FILES):
        return named
    if not named.is_dir():
        raise DataError(
            f"{named} is not a folder; name one that holds {FOLDER}/ with {_SOME_FILES}"
        )
    raise DataError(
        f"{named} holds neither {FOLDER}/ nor {_SOME_FILES}; put them there or name another folder"
    )


def _read_all(folder: Path) -> List[bytes]:
    contents: List[bytes] = []
    faults: List[str] = []
    for file in FILES:
        try:
            contents.append(file.read(folder))
        except DataError as error:
            faults.append(str(error))
    if faults:
        raise DataError(
            f"{'; '.join(faults)}; put the official files there, or name no folder and let mxdp download them"
        )
    return contents

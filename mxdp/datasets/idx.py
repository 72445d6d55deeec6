"""Reads gzipped IDX files, the format of MNIST: a header of big-endian 32-bit numbers, then one byte for each value.

::

    images   00 00 08 03 | n | 28 | 28 | n * 28 * 28 pixels, from 0 (background) to 255
    labels   00 00 08 01 | n | n bytes, each 0 to 9

Source: http://yann.lecun.com/exdb/mnist/, "File formats".
"""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Tuple

import numpy as np
import numpy.typing as npt

from mxdp.datasets.records import Images, Labels, Split
from mxdp.errors import DataError

_IMAGES, _LABELS = 0x803, 0x801
_SIDE = 28
_CLASSES = 10


def parse_images(data: bytes, name: str) -> Images:
    """Pixels of a gzipped IDX image file as float32 (n, 1, 28, 28) in [0, 1]. ``name`` is for error messages.

    The division reads the unpacked bytes and writes directly into the result.

    Raises:
        DataError: not gzip, truncated, not an image file, not 28 x 28, or header and body disagree.
    """
    unpacked = _unpack(data, name)
    count, height, width = _header(unpacked, _IMAGES, 3, name)
    if (height, width) != (_SIDE, _SIDE):
        raise DataError(f"{name} holds pictures of {height} x {width} pixels, not {_SIDE} x {_SIDE}")
    pixels = _body(unpacked, 16, count * _SIDE * _SIDE, f"{count} pictures of {_SIDE} x {_SIDE}", name)
    images = np.empty((count, 1, _SIDE, _SIDE), np.float32)
    # Without the dtype NumPy divides in float64 and rounds, which takes twice as long.
    np.divide(pixels.reshape(images.shape), 255, out=images, dtype=np.float32)
    return images


def parse_labels(data: bytes, name: str) -> Labels:
    """Labels of a gzipped IDX label file as int32 (n,).

    Raises:
        DataError: not gzip, truncated, not a label file, header and body disagree, or a label is not 0 to 9.
    """
    unpacked = _unpack(data, name)
    (count,) = _header(unpacked, _LABELS, 1, name)
    labels = _body(unpacked, 8, count, f"{count} labels", name)
    wrong = np.flatnonzero(labels >= _CLASSES)
    if wrong.size:
        first = int(wrong[0])
        raise DataError(f"{name}: label number {first} is {labels[first]}, but labels are 0 to {_CLASSES - 1}")
    return labels.astype(np.int32)


def parse_split(images: bytes, labels: bytes, images_name: str, labels_name: str) -> Split:
    """The split from an image file and its label file.

    Raises:
        DataError: one of the files is wrong, or they differ in the number of samples.
    """
    y = parse_labels(labels, labels_name)
    X = parse_images(images, images_name)
    if len(X) != len(y):
        raise DataError(f"{images_name} holds {len(X)} pictures, but {labels_name} holds {len(y)} labels")
    return Split(X, y)


def _unpack(data: bytes, name: str) -> bytes:
    if not data:
        raise DataError(f"{name} is empty")
    if data[:2] != b"\x1f\x8b":
        raise DataError(f"{name} is not a gzip file: it starts with the bytes {data[:4].hex(' ')}")
    try:
        return gzip.decompress(data)
    except (EOFError, struct.error) as error:
        raise DataError(f"{name} is truncated: the gzip stream has no end") from error
    except (OSError, zlib.error) as error:
        raise DataError(f"{name} is a damaged gzip file: {error}") from error


def _header(unpacked: bytes, magic: int, dimensions: int, name: str) -> Tuple[int, ...]:
    size = 4 * (1 + dimensions)
    found = int.from_bytes(unpacked[:4], "big") if len(unpacked) >= 4 else None
    if found is not None and found != magic:
        raise DataError(
            f"{name} starts with the magic number 0x{found:08x}, not 0x{magic:08x}: it is another kind of file"
        )
    if len(unpacked) < size:
        raise DataError(f"{name} unpacks to {len(unpacked)} bytes, less than its header of {size}")
    return struct.unpack_from(f">{dimensions}I", unpacked, 4)


def _body(unpacked: bytes, start: int, size: int, what: str, name: str) -> npt.NDArray[np.uint8]:
    found = len(unpacked) - start
    if found != size:
        raise DataError(f"{name}: the header says {what}, which is {size} bytes, but {found} follow")
    return np.frombuffer(unpacked, np.uint8, offset=start)

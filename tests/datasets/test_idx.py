from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest

from mxdp.datasets.idx import parse_images, parse_labels, parse_split
from mxdp.errors import DataError

PIXELS = np.arange(3 * 784).reshape(3, 28, 28) % 256
LABELS = np.array([9, 0, 5])


def test_pixels_become_float32_from_0_to_1_exactly(idx_file):
    images = parse_images(idx_file(0x803, PIXELS), "a.gz")

    assert images.dtype == np.float32
    assert images.shape == (3, 1, 28, 28)
    assert images.flags.c_contiguous
    assert np.array_equal(images[:, 0], PIXELS.astype(np.float32) / np.float32(255))
    assert (images.min(), images.max()) == (0.0, 1.0)


def test_labels_become_int32(idx_file):
    labels = parse_labels(idx_file(0x801, LABELS), "a.gz")

    assert labels.dtype == np.int32
    assert labels.tolist() == [9, 0, 5]


def test_a_split_keeps_pictures_and_labels_together(idx_file):
    split = parse_split(idx_file(0x803, PIXELS), idx_file(0x801, LABELS), "i.gz", "l.gz")

    assert len(split) == 3
    assert split.X[1, 0, 0, 0] == np.float32(PIXELS[1, 0, 0] / 255)
    assert split.y[1] == 0


def test_no_samples_at_all_is_a_split_too(idx_file):
    split = parse_split(idx_file(0x803, np.zeros((0, 28, 28))), idx_file(0x801, np.zeros(0)), "i.gz", "l.gz")

    assert split.X.shape == (0, 1, 28, 28)


def test_the_numbers_of_pictures_and_labels_must_agree(idx_file):
    with pytest.raises(DataError, match=r"^i.gz holds 3 pictures, but l.gz holds 2 labels$"):
        parse_split(idx_file(0x803, PIXELS), idx_file(0x801, LABELS[:2]), "i.gz", "l.gz")


@pytest.mark.parametrize("cut", [11, 100, -9, -8, -1])
def test_a_truncated_gzip_stream(idx_file, cut):
    with pytest.raises(DataError, match=r"^a.gz is truncated: the gzip stream has no end$"):
        parse_images(idx_file(0x803, PIXELS)[:cut], "a.gz")


def test_an_empty_file():
    with pytest.raises(DataError, match=r"^a.gz is empty$"):
        parse_images(b"", "a.gz")


def test_not_gzip():
    with pytest.raises(DataError, match=r"^a.gz is not a gzip file: it starts with the bytes 3c 68 74 6d$"):
        parse_labels(b"<html>404</html>", "a.gz")


def test_a_gzip_file_with_a_flipped_bit(idx_file):
    data = bytearray(idx_file(0x803, PIXELS))
    data[-6] ^= 1  # in the CRC

    with pytest.raises(DataError, match=r"^a.gz is a damaged gzip file: CRC check failed"):
        parse_images(bytes(data), "a.gz")


def test_labels_where_pictures_should_be(idx_file):
    with pytest.raises(DataError, match=r"^a.gz starts with the magic number 0x00000801, not 0x00000803: "):
        parse_images(idx_file(0x801, LABELS), "a.gz")
    with pytest.raises(DataError, match=r"^a.gz starts with the magic number 0x00000803, not 0x00000801: "):
        parse_labels(idx_file(0x803, PIXELS), "a.gz")


@pytest.mark.parametrize("size", [0, 3, 4, 15])
def test_a_file_shorter_than_its_header(size):
    start = struct.pack(">4I", 0x803, 3, 28, 28)[:size]

    with pytest.raises(DataError, match=rf"^a.gz unpacks to {size} bytes, less than its header of 16$"):
        parse_images(gzip.compress(start), "a.gz")


def test_pictures_of_another_size(idx_file):
    with pytest.raises(DataError, match=r"^a.gz holds pictures of 32 x 28 pixels, not 28 x 28$"):
        parse_images(idx_file(0x803, np.zeros((2, 32, 28))), "a.gz")


@pytest.mark.parametrize("change", [-1, 1, 784])
def test_a_body_that_is_not_what_the_header_says(idx_file, change):
    unpacked = gzip.decompress(idx_file(0x803, PIXELS))
    unpacked = unpacked[:change] if change < 0 else unpacked + bytes(change)

    with pytest.raises(
        DataError, match=rf"says 3 pictures of 28 x 28, which is 2352 bytes, but {2352 + change} follow$"
    ):
        parse_images(gzip.compress(unpacked), "a.gz")


def test_a_header_that_promises_terabytes_is_refused_before_memory_is_asked_for():
    unpacked = struct.pack(">4I", 0x803, 2**32 - 1, 28, 28)

    with pytest.raises(DataError, match=r"says 4294967295 pictures .* but 0 follow$"):
        parse_images(gzip.compress(unpacked), "a.gz")


def test_too_few_labels():
    with pytest.raises(DataError, match=r"^a.gz: the header says 4 labels, which is 4 bytes, but 3 follow$"):
        parse_labels(gzip.compress(struct.pack(">2I", 0x801, 4) + bytes(3)), "a.gz")


def test_a_label_that_is_no_class(idx_file):
    with pytest.raises(DataError, match=r"^a.gz: label number 2 is 10, but labels are 0 to 9$"):
        parse_labels(idx_file(0x801, np.array([0, 9, 10, 255])), "a.gz")

from __future__ import annotations

from mxdp.experiments.automatic_parallelism.slides import size_in_words


def test_a_given_size_stands_beside_the_slides():
    said = size_in_words(20, 800, {}, {"size": 800, "run_seconds": 0.5})
    assert said == "20 products of 800 x 800 (the slides: 50 of 4000 x 4000)"


def test_a_scaled_size_says_what_it_was_scaled_by():
    said = size_in_words(50, 720, {"rate": 4e10}, {"size": None, "run_seconds": 0.5})
    assert said.endswith("x 4000), scaled to about 0.5 s by the measured rate of 80 Gflop/s")

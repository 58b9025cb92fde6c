"""Test that pictures become upright, with 8 bits, the same for all decoders, or are refused."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from oddpictures import CASES, GOOD, OTHERS, Case, different
from shards import picturefile
from shards.picturefacts import BadImage

ALL = {**CASES, **OTHERS}
READ = {name: case for name, case in ALL.items() if case.pixels is not None}


@pytest.mark.parametrize("case", READ.values(), ids=READ)
def test_a_picture_is_upright_with_8_bits(case: Case) -> None:
    found = picturefile.picture(case.content)
    assert found.mode in ("L", "RGB")
    assert not different(np.asarray(found), case)


@pytest.mark.parametrize("case", READ.values(), ids=READ)
def test_what_decoders_read_differently_becomes_one_file_for_all(case: Case) -> None:
    found = picturefile.plain(case.content)
    assert (found == case.content) == case.plain
    if not case.plain:
        with Image.open(io.BytesIO(found)) as image:  # looks at no tag
            assert image.mode in ("L", "RGB")
            assert not different(np.asarray(image), case)


@pytest.mark.parametrize("case", [ALL[name] for name in ALL if ALL[name].says],
                         ids=[name for name in ALL if ALL[name].says])
def test_a_bad_picture_says_why(case: Case) -> None:
    with pytest.raises(BadImage, match=case.says):
        picturefile.picture(case.content)


def test_grey_of_16_bits_is_scaled_by_channel_not_clipped() -> None:
    image = picturefile.picture(GOOD["png grey of 16 bits"].content)
    for channels, mode in ((1, "L"), (3, "RGB")):
        found = picturefile.in_channels(image, channels)
        assert found.mode == mode
        assert np.asarray(found).max() == max(CASES["png grey of 16 bits"].pixels.ravel())

"""Measure how fast DALI processes random pictures on the GPU, if DALI is installed."""

from __future__ import annotations

from gpuparts import NotHereError, Report, stand_ins
from gpuparts.timing import seconds_of

BATCH, SIDE = 256, 224


def measure(device: str, _until: float, report: Report) -> None:
    """Report the rate at which random pictures are cropped and normalized on the GPU.

    Raises:
        NotHereError: the machine has no GPU, or DALI is not installed.
    """
    if device != "cuda":
        raise NotHereError("DALI's GPU path needs an NVIDIA GPU")
    if stand_ins.is_missing("nvidia.dali"):
        raise NotHereError("DALI is not installed")
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=4, device_id=0)
    def pictures() -> object:
        noise = fn.random.uniform(range=[0, 255], shape=[256, 256, 3], device="gpu")
        return fn.crop_mirror_normalize(
            fn.cast(noise, dtype=types.UINT8), crop=(SIDE, SIDE), dtype=types.FLOAT16,
            output_layout="CHW", mean=[127.0] * 3, std=[64.0] * 3,
        )

    pipe = pictures()
    pipe.build()
    seconds = seconds_of(pipe.run, device)
    report("DALI: random pictures, cropped and normalized", BATCH / seconds, "img/s")

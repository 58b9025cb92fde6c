"""Self-test of the PyTorch images: the image's libraries are used and compute correctly.

Argument: the vendor of the GPUs that the image supports (none, nvidia, amd). On a machine without
a GPU, the tests on GPUs are left out.
"""

# ruff: noqa: S101, T201 - a self-test uses assert, and prints what it tested
import sys
import tempfile

import h5py
import lmdb
import numpy as np
import nvidia.dali as dali
import torch
from nvidia.dali import fn, pipeline_def
from selftest_common import (
    HOROVOD,
    check_horovod,
    check_isolation,
    check_no_horovod,
    conclude,
    run_ranks,
)


def check_torch(gpu: str) -> None:
    """Check that PyTorch was built for GPUs of the vendor `gpu`, and computes correct products.

    If `gpu` is "none", PyTorch must have been built for CPUs only.
    """
    toolkits = {"nvidia": torch.version.cuda, "amd": torch.version.hip}
    assert [of for of, version in toolkits.items() if version] == [gpu] * (gpu != "none"), toolkits
    if gpu == "none":
        assert torch.backends.mkldnn.is_available(), "oneDNN is missing"
        print(f"torch {torch.__version__} with oneDNN")
    else:
        print(f"torch {torch.__version__} for {gpu} {toolkits[gpu]},"
              f" with code for {torch._C._cuda_getArchFlags()}")
    check_product(torch.device("cpu"), torch.bfloat16)
    if torch.cuda.is_available():
        # Pascal and Volta have fp16, but no bf16.
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        check_product(torch.device("cuda"), torch.bfloat16 if native else torch.float16)
        print(f"GPU 0 is a {torch.cuda.get_device_name(0)}")


def check_product(device: torch.device, dtype: torch.dtype) -> None:
    """Check a matrix product in `dtype` against the product in fp32."""
    torch.manual_seed(0)
    left, right = torch.randn(256, 256), torch.randn(256, 256)
    product = (left.to(device, dtype) @ right.to(device, dtype)).float().cpu()
    error = ((product - left @ right).norm() / (left @ right).norm()).item()
    assert error < 0.02, f"{dtype} product on {device} is off by {error:.3f}"
    print(f"{dtype} product on {device} within {error:.4f}")


def check_dali(*, gpu: bool) -> None:
    """Check that DALI decodes each pixel of an image, and copies the image to the GPU if `gpu`."""
    rows = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    picture = np.frombuffer(b"P6 16 16 255\n" + rows.tobytes(), dtype=np.uint8)

    @pipeline_def(batch_size=2, num_threads=1, device_id=0 if gpu else None)
    def pipeline():
        images = fn.decoders.image(fn.external_source(lambda: [picture] * 2), device="cpu")
        return images.gpu() if gpu else images

    (images,) = pipeline().run()
    if gpu:
        images = images.as_cpu()
    assert (images.at(0) == rows).all(), "DALI decoded wrong pixels"
    print(f"DALI {dali.__version__}: decodes{', and copies to the GPU' if gpu else ' on the CPU'}")


def check_formats() -> None:
    """Check that h5py and lmdb read the files that they write; DALI cannot read these formats."""
    with tempfile.TemporaryDirectory() as folder:
        with h5py.File(f"{folder}/data.h5", "w") as file:
            file["images"] = np.arange(10)
        with h5py.File(f"{folder}/data.h5") as file:
            assert file["images"][7] == 7
        with lmdb.open(f"{folder}/lmdb", map_size=1 << 20) as env:
            with env.begin(write=True) as transaction:
                transaction.put(b"7", b"seven")
            with env.begin() as transaction:
                assert transaction.get(b"7") == b"seven"
    print(f"h5py {h5py.__version__} and lmdb {lmdb.__version__} read and write")


if __name__ == "__main__":
    image_gpu, found = sys.argv[1], torch.cuda.device_count()
    check_isolation()
    check_torch(image_gpu)
    check_dali(gpu=image_gpu == "nvidia" and found > 0)
    check_formats()
    if HOROVOD:
        import horovod.torch as hvd

        check_horovod(hvd, image_gpu)
        run_ranks("selftest_torch_ranks.py", found)
    else:
        check_no_horovod()
    conclude(image_gpu, found)

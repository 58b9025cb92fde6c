"""Self-test of the development images: their tools run, and the self-test of PyTorch passes.

Argument: the vendor of the GPUs that the image supports (none, nvidia, amd).
"""

# ruff: noqa: T201 - a self-test prints what it tested
import subprocess
import sys
from pathlib import Path

import torch

TOOLS = ("git", "less", "ps", "c++", "pip", "jupyter-lab")


def check_tools() -> None:
    """Check that each tool is installed and runs."""
    for tool in TOOLS:
        done = subprocess.run(
            [tool, "--version"], capture_output=True, text=True, check=True, timeout=120
        )
        print(f"{tool}: {done.stdout.splitlines()[0]}")


def check_compile() -> None:
    """Check results of torch.compile on the CPU and, if there is one, on a GPU."""
    @torch.compile
    def compiled(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * 2 + x.relu()

    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        x = torch.linspace(-3, 3, 1000, device=device)
        torch.testing.assert_close(compiled(x), torch.sin(x) * 2 + x.relu())
        print(f"torch.compile: compiled for {device}")


if __name__ == "__main__":
    check_tools()
    check_compile()
    below = Path(__file__).with_name("selftest_torch.py")
    sys.exit(subprocess.run([sys.executable, below, *sys.argv[1:]], check=False).returncode)

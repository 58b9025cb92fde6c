"""Self-test of the images to develop in: their tools work, and the image below is all there.

Argument: whose GPUs the image is for (none, nvidia, amd).
"""

# ruff: noqa: T201 - a self-test asserts, and says what it saw
import subprocess
import sys
from pathlib import Path

import torch

TOOLS = ("git", "less", "ps", "c++", "pip", "jupyter-lab")


def check_tools() -> None:
    """Each tool is there and runs."""
    for tool in TOOLS:
        done = subprocess.run(
            [tool, "--version"], capture_output=True, text=True, check=True, timeout=120
        )
        print(f"{tool}: {done.stdout.splitlines()[0]}")


def check_compile() -> None:
    """torch.compile makes code for the CPU and for a GPU, if there is one, with equal results."""
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

"""The inherited tests of the app contract, and the tests of the app itself."""

from pathlib import Path

from trainkit.testing import App, Contract


class TestContract(Contract):
    app = App(
        folder=Path(__file__).parents[1],
        training="--steps 2000 --checkpoint-every 7 --log-every 5 --device cpu",
        steps=2000, diverging="--base-lr 1e30",
        alone="--steps 6 --log-every 2", shared="--steps 6 --log-every 2 --batch-size-per-rank 16",
    )

"""Self-test of a language-model image: a tokenizer, and two ranks that divide the weights.

Each rank writes its part of the checkpoint. One process then loads all parts and evaluates the
network.
"""

# ruff: noqa: S101, T201 - a self-test asserts, and says what it saw
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

APP = ["-m", "language_model"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TEXT = "Two ranks have one network, and each rank has one half of it."


def check_tokenizer() -> None:
    """Check that a byte-level tokenizer learns some merges, and decodes its tokens correctly."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(vocab_size=280, initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    tokens = tokenizer.encode(TEXT).ids
    assert len(tokens) < len(TEXT), f"nothing was merged: {len(tokens)} tokens"
    assert tokenizer.decode(tokens) == TEXT, "the tokenizer does not return its text"
    print(f"tokenizer: {len(TEXT)} characters are {len(tokens)} tokens")


def check_ranks() -> None:
    """Check a training on two ranks that shard the weights (FSDP), and its evaluation.

    A single process evaluates the trained network. Its loss must be that of the two ranks.
    """
    with tempfile.TemporaryDirectory() as out:
        data = ["--synthetic", f"--out={out}", "--device=cpu"]
        options = [
            "--model=llama-test", "--batch-size=8", "--steps=3", "--log-every=1",
            "--strategy=mesh", "--data-parallel=fsdp",
        ]
        subprocess.run([sys.executable, *TORCHRUN, *APP, "train", *data, *options], check=True)
        result = json.loads((Path(out) / "result.json").read_text())
        assert result["steps"] == 3, f"expected 3 steps: {result}"
        print("training: three steps of two ranks, with divided weights")
        words = [sys.executable, *APP, "evaluate", *data, "--json"]
        scores = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    trained, alone = result["evaluation"]["loss"], scores["loss"]
    assert abs(trained - alone) < 1e-3, f"loss {trained} of two ranks, {alone} of one process"
    print(f"evaluation: one process has the loss of two ranks, {alone:.4f}")


if __name__ == "__main__":
    check_tokenizer()
    check_ranks()
    print("self-test passed")

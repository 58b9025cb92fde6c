"""Weights are exchanged with Hugging Face transformers, from checkpoints of any layout."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import packed_text
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from test_language_layouts import LLAMA, train
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from language_model import export, huggingface, initial
from language_model.__main__ import main
from language_model.configuration import config_of, shape_of
from language_model.initial import Initial
from language_model.layout import Layout
from language_model.settings import TrainSettings
from language_model.shapes import SHAPES, Shape
from language_model.state import load_weights
from language_model.steps import Network
from trainkit import checkpoint, tensorfile
from trainkit.exits import DataError
from trainkit.tensorfile import Source
from trainkit.torch.strategy import TorchStrategy

replace = dataclasses.replace
KINDS: dict[str, Shape] = {
    "gpt2": SHAPES["gpt2-test"],
    "gpt2-untied": replace(SHAPES["gpt2-test"], tied=False, hidden=100),
    "llama": SHAPES["llama-test"],
    "llama-tied": replace(SHAPES["llama-test"], tied=True, key_heads=4, epsilon=1e-6),
    "llama-stretched": replace(
        SHAPES["llama-test"], positions=256, theta=5e5, rotary_scaling=(8.0, 1.0, 4.0, 64)
    ),
}
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


class InMemory:
    """A weight in memory; see `huggingface.Readable`."""

    dtype = "float32"

    def __init__(self, values: Tensor) -> None:
        self._values = values.detach().numpy()
        self.shape = self._values.shape

    def read(self, offsets: Any = None, shape: Any = None) -> Any:
        """Return the part that begins at `offsets` and has `shape`; by default the whole weight."""
        offsets, shape = offsets or (0,) * len(self.shape), shape or self.shape
        pairs = zip(offsets, shape, strict=True)
        return self._values[tuple(slice(low, low + size) for low, size in pairs)]


def network_of(shape: Shape, seed: int = 3) -> Network:
    """Return a network with noise in all weights, so that no bias is 0 and no norm weight 1."""
    network = Network(shape, Layout(), TorchStrategy(), seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in network.parameters.values():
            weight += 0.05 * torch.randn(weight.shape, generator=generator)
    return network


def write(folder: Path, network: Network) -> Path:
    """Write the weights and the configuration of a network, as `export` does."""
    folder.mkdir(exist_ok=True)
    weights = {name: InMemory(one) for name, one in network.parameters.items()}
    export.write_weights(folder, network.shape, weights)
    (folder / "config.json").write_text(json.dumps(config_of(network.shape)))
    return folder


def logits(network: Network, tokens: Tensor) -> Tensor:
    """Return the logits that this app computes, (batch, tokens, vocabulary)."""
    with torch.no_grad():
        found: Tensor = network.stages[0].eval()(
            tokens, torch.arange(tokens.shape[1]).expand(tokens.shape)
        )
    return found


def theirs(folder: Path, tokens: Tensor) -> Tensor:
    """Return the logits that transformers computes, (batch, tokens, vocabulary)."""
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        found: Tensor = network(tokens).logits
    return found


def opened(path: Path) -> Initial:
    return initial.open_initial(TrainSettings(initial=path), TorchStrategy())


def loaded(path: Path) -> Network:
    """Return a network with the initial weights in `path`."""
    first = opened(path)
    network = Network(first.shape, Layout(), TorchStrategy(), 99)
    first.load(network)
    return network


def assert_same(one: Network, other: Network) -> None:
    assert one.parameters.keys() == other.parameters.keys()
    for name, weight in one.parameters.items():
        assert torch.equal(weight, other.parameters[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_computes_the_same_logits(kind: str, tmp_path: Path) -> None:
    network, tokens = network_of(KINDS[kind]), torch.randint(0, 257, (2, 60))
    folder = write(tmp_path / "out", network)
    torch.testing.assert_close(
        theirs(folder, tokens), logits(network, tokens), rtol=1e-4, atol=1e-5
    )
    assert_same(loaded(folder), network)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_transformers_saves_come_back(kind: str, tmp_path: Path) -> None:
    """The app loads what transformers saves: its own config.json, and weights in fp32 or bf16."""
    network, tokens = network_of(KINDS[kind]), torch.randint(0, 257, (2, 60))
    model = AutoModelForCausalLM.from_pretrained(write(tmp_path / "ours", network))
    model.save_pretrained(tmp_path / "same")
    assert opened(tmp_path / "same").shape == KINDS[kind]
    assert_same(loaded(tmp_path / "same"), network)
    model.to(torch.bfloat16).save_pretrained(tmp_path / "half")
    torch.testing.assert_close(
        logits(loaded(tmp_path / "half"), tokens), theirs(tmp_path / "half", tokens),
        rtol=1e-4, atol=1e-5,
    )


def test_the_digest_depends_on_shape_and_weights_but_not_on_the_place(tmp_path: Path) -> None:
    shape, longer = KINDS["llama"], replace(KINDS["llama"], positions=128)
    folders = [write(tmp_path / "a", network_of(shape)), write(tmp_path / "b", network_of(shape)),
               write(tmp_path / "c", network_of(shape, 5)),
               write(tmp_path / "d", network_of(longer))]
    one, same, other, another = (opened(folder).digest for folder in folders)
    assert one == same
    assert len({one, other, another}) == 3


def test_random_weights_of_transformers_are_read(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(
        vocab_size=300, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=128,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "one")
    tokens = torch.randint(0, 300, (2, 100))
    torch.testing.assert_close(
        logits(loaded(tmp_path / "one"), tokens), theirs(tmp_path / "one", tokens),
        rtol=1e-4, atol=1e-5,
    )


def test_large_weights_have_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "LARGEST_FILE", 100_000)
    network, tokens = network_of(KINDS["gpt2"]), torch.randint(0, 257, (2, 60))
    folder = write(tmp_path / "out", network)
    files = sorted(folder.glob("*.safetensors"))
    assert len(files) == 3
    assert files[0].name == "model-00001-of-00003.safetensors"
    assert all(file.stat().st_size < 110_000 for file in files)
    torch.testing.assert_close(
        theirs(folder, tokens), logits(network, tokens), rtol=1e-4, atol=1e-5
    )
    assert_same(loaded(folder), network)


def test_names_without_their_first_part_and_buffers_are_read(tmp_path: Path) -> None:
    """The app reads a file like OpenAI's GPT-2, in which names lack `transformer.`.

    Such a file also contains masks and an output layer.
    """
    network = network_of(KINDS["gpt2"])
    folder = write(tmp_path / "out", network)
    found = initial._tensors([folder / "model.safetensors"])
    renamed = {name.removeprefix("transformer."): Source.of(np.asarray(one.read()))
               for name, one in found.items()}
    renamed["h.0.attn.bias"] = Source.of(np.tril(np.ones((1, 1, 64, 64), np.float32)))
    renamed["lm_head.weight"] = renamed["wte.weight"]
    tensorfile.write(folder / "model.safetensors", renamed, {})
    assert_same(loaded(folder), network)


@given(data=st.data(), kind=st.sampled_from(["gpt2", "llama"]))
@settings(max_examples=60, deadline=None)
def test_any_part_of_a_weight_is_read(data: st.DataObject, kind: str) -> None:
    network = network_of(KINDS[kind])
    weights = {name: InMemory(one) for name, one in network.parameters.items()}
    sources = {name: InMemory(torch.from_numpy(np.array(huggingface.joined(one, weights))))
               for name, one in huggingface.tensors(network.shape).items()}
    found = huggingface.views(network.shape, sources)
    name = data.draw(st.sampled_from(sorted(found)))
    whole = network.parameters[name].detach().numpy()
    ranges = [sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n))))
              for n in whole.shape]
    part = found[name].read(tuple(low for low, _ in ranges),
                            tuple(high - low for low, high in ranges))
    np.testing.assert_array_equal(part, whole[tuple(slice(*one) for one in ranges)])


Change = Callable[[Path], object]


def edited(**entries: Any) -> Change:
    """Return a function that changes entries of the config.json in a folder."""
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | entries))

    return change


def index(**names: Any) -> Change:
    """Return a function that writes an index of weight files into a folder."""
    def change(folder: Path) -> None:
        text = json.dumps({"weight_map": {f"t{n}": name for n, name in names.items()}})
        (folder / "model.safetensors.index.json").write_text(text)

    return change


def weights_changed(change: Callable[[dict[str, np.ndarray[Any, Any]]], object]) -> Change:
    """Return a function that applies `change` to all tensors in a folder."""
    def changed(folder: Path) -> None:
        path = folder / "model.safetensors"
        found = {k: np.array(v.read()) for k, v in initial._tensors([path]).items()}
        change(found)
        tensorfile.write(path, {k: Source.of(v) for k, v in found.items()}, {})

    return changed


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])


def huge_header(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes((1 << 62).to_bytes(8, "little") + path.read_bytes()[8:])


def pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


NORM = "model.norm.weight"
HOSTILE: dict[str, tuple[Change, str, str]] = {
    "cut": (cut, "weights-damaged", "model.safetensors is not a file of tensors"),
    "empty": (lambda f: (f / "model.safetensors").write_bytes(b""), "weights-damaged", "header"),
    "a huge header": (huge_header, "weights-damaged", "a header of 4611686018427387904 bytes"),
    "not JSON": (lambda f: (f / "config.json").write_text("{"), "weights-damaged", "is not JSON"),
    "deep JSON": (lambda f: (f / "config.json").write_text("[" * 200_000), "weights-damaged",
                  "is not JSON"),
    "a list": (lambda f: (f / "config.json").write_text("[]"), "weights-damaged", "an object"),
    "no config": (lambda f: (f / "config.json").unlink(), "file-missing", "config.json"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "file-missing", "has no model.s"),
    "a pickle": (pickle, "weights-damaged", "is a pickle.*save_pretrained"),
    "another folder": (index(a="../other/model.safetensors"), "weights-damaged",
                       r"\.\./other.* not the name"),
    "an absolute path": (index(a="/etc/model.safetensors"), "weights-damaged",
                         "/etc.* not the name"),
    "no name": (index(a=7), "weights-damaged", "refers to 7"),
    "a missing file": (index(a="b.safetensors"), "weights-damaged", "b.safetensors cannot be read"),
    "an empty index": (index(), "weights-damaged", "no weight_map"),
    "another family": (edited(model_type="bert"), "weights-mismatch", "model_type is 'bert'"),
    "a text": (edited(hidden_size="32"), "weights-mismatch", "hidden_size is '32'"),
    "a negative size": (edited(num_hidden_layers=-1), "weights-mismatch", "num_hidden_layers"),
    "many layers": (edited(num_hidden_layers=10**9), "weights-mismatch", "1000000000 layers"),
    "a huge width": (edited(hidden_size=2**31 - 4, num_attention_heads=2, head_dim=None),
                     "weights-mismatch", "parameters, more than"),
    "a number of 400 digits": (edited(rms_norm_eps=10**400), "weights-mismatch", "rms_norm_eps"),
    "uneven heads": (edited(num_attention_heads=5, head_dim=None), "weights-mismatch", "5 heads"),
    "other heads": (edited(head_dim=64), "weights-mismatch", "head_dim is 64"),
    "biases": (edited(attention_bias=True), "weights-mismatch", "attention_bias is True"),
    "another scaling": (edited(rope_scaling={"rope_type": "yarn", "factor": 2.0}),
                        "weights-mismatch", "'yarn'"),
    "another shape": (edited(intermediate_size=97), "weights-mismatch",
                      r"up_proj.weight has the shape \(96, 32\).*\(97, 32\)"),
    "too few layers": (edited(num_hidden_layers=3), "weights-mismatch",
                       r"unknown, the tensor model.layers.3.*and 8 more"),
    "a missing tensor": (weights_changed(lambda w: w.pop(NORM)), "weights-mismatch",
                         f"lacks the tensor {NORM}"),
    "an integer": (weights_changed(lambda w: w.update({NORM: np.ones(32, np.int8)})),
                   "weights-mismatch", "norm.weight is of int8"),
    "not a number": (weights_changed(lambda w: w[NORM].__setitem__(3, np.nan)), "weights-damaged",
                     r"norm.weight has values that are not finite"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_folders_are_refused(name: str, tmp_path: Path) -> None:
    change, code, message = HOSTILE[name]
    folder = write(tmp_path / "out", network_of(KINDS["llama"]))
    change(folder)
    with pytest.raises(DataError, match=message) as error:
        loaded(folder)
    assert error.value.code == code


@pytest.mark.parametrize("kind", KINDS)
def test_the_shape_is_that_of_the_configuration(kind: str) -> None:
    assert shape_of(json.loads(json.dumps(config_of(KINDS[kind])))) == KINDS[kind]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "job"), [
    ("fsdp-tp", {"layout": {"data_parallel": "fsdp", "tensor": 2}}),
    pytest.param(
        "tp-pp", {"layout": {"tensor": 2, "pipeline": 2, "micro_batches": 2}, **LLAMA},
        marks=pytest.mark.long,
    ),
])
def test_a_checkpoint_of_four_ranks_is_exported(
    name: str, job: dict[str, Any], tmp_path: Path
) -> None:
    """The app and transformers compute the same logits from a checkpoint that four ranks wrote."""
    train(4, [{**job, "steps": 3, "save": str(tmp_path / name), "at": 3}], tmp_path)
    state = checkpoint.load(tmp_path / name / "step-00000003.npz")
    shape = SHAPES[job.get("shape", "gpt2-test")]
    (tmp_path / "out").mkdir()
    export.write_weights(tmp_path / "out", shape, state["parts"]["network"])
    (tmp_path / "out/config.json").write_text(json.dumps(config_of(shape)))
    network, tokens = Network(shape, Layout(), TorchStrategy(), 99), torch.randint(0, 257, (2, 60))
    load_weights({"about": {}, **state}, network)
    torch.testing.assert_close(
        theirs(tmp_path / "out", tokens), logits(network, tokens), rtol=1e-4, atol=1e-5
    )


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed_text.small(tmp_path_factory.mktemp("data") / "small")


def trained(text: Path, out: Path, *more: str) -> Path:
    """Train a small network, and return the newest checkpoint."""
    words = ["--data", str(text), "--out", str(out), "--sequence", "32", "--batch-size", "16",
             "--precision", "fp32", "--device", "cpu", "--eval-every", "0", *more]
    assert main(["train", *words]) == 0
    return sorted((out / "checkpoints").glob("*.npz"))[-1]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.slow
def test_a_run_is_exported_with_its_configuration(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = trained(text, tmp_path / "run", "--model", "llama-test", "--steps", "3")
    assert main(["export", "--checkpoint", str(file), "--to", str(tmp_path / "one")]) == 0
    network = loaded(tmp_path / "one")
    assert network.shape == SHAPES["llama-test"]
    assert_same(network, loaded(file))
    own = {"config.json", "model.safetensors"}
    with_tokenizer = own | {"tokenizer.json", "tokenizer_config.json"}
    assert names(tmp_path / "one") == with_tokenizer  # from the folder of the run
    assert "65,888 parameters in fp32\n" in capsys.readouterr().out
    words = ["export", "--out", str(tmp_path / "run"), "--to", str(tmp_path / "one")]
    assert main(words) == 2
    assert "error[file-exists]" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    (tmp_path / "run/tokenizer.json").unlink()
    assert main([*words[:-1], str(tmp_path / "without")]) == 0
    assert names(tmp_path / "without") == own
    assert "without the tokenizer" in capsys.readouterr().out
    assert main([*words[:-1], str(tmp_path / "empty"), "--data", str(text)]) == 0
    assert names(tmp_path / "empty") == with_tokenizer
    assert json.loads((tmp_path / "empty/config.json").read_text())["eos_token_id"] == 256
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert main([*words[:-1], str(tmp_path / "link")]) == 0
    assert names(tmp_path / "target") == own
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main([*words[:-1], "."]) == 0
    assert names(tmp_path / "here") == own
    other = packed_text.small(tmp_path / "other")
    (other / "tokenizer.json").write_text("{}")
    assert main([*words[:-1], str(tmp_path / "two"), "--data", str(other)]) == 3
    assert "error[checksum-mismatch]" in capsys.readouterr().err
    assert not (tmp_path / "two").exists()


def test_transformers_reads_the_tokenizer(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: n for n, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    folder, content = write(tmp_path / "out", network_of(KINDS["gpt2"])), tokenizer.to_str()
    (folder / "tokenizer.json").write_text(content)
    (folder / "tokenizer_config.json").write_bytes(export.tokenizer_config(content.encode(), 256))
    found = AutoTokenizer.from_pretrained(folder)
    assert found.encode("Ahoy!") == tokenizer.encode("Ahoy!").ids
    assert found.eos_token_id == 256


@pytest.mark.slow
def test_a_fine_tuning_begins_with_the_weights_and_resumes_without_them(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "base", network_of(SHAPES["llama-test"]))
    words = ["--initial", str(folder), "--learning-rate", "1e-12", "--weight-decay", "0"]
    file = trained(text, tmp_path / "run", *words, "--steps", "2")
    before, after = loaded(folder), loaded(file)
    for name, weight in before.parameters.items():
        torch.testing.assert_close(after.parameters[name], weight, rtol=0, atol=1e-9)
    words[3] = "1e-2"
    whole = trained(text, tmp_path / "whole", *words, "--steps", "6")
    half = [*words, "--steps", "6", "--checkpoint-every", "3"]
    trained(text, tmp_path / "half", *half, "--max-steps", "3")
    for path in (tmp_path / "half").glob("result.json"):
        path.unlink()
    (tmp_path / "changed").mkdir()
    other = write(tmp_path / "changed", network_of(SHAPES["llama-test"], 5))
    resumed = ["train", "--data", str(text), "--out", str(tmp_path / "half"), "--sequence", "32",
               "--batch-size", "16", "--precision", "fp32", "--device", "cpu", "--eval-every", "0",
               *half, "--resume", "auto"]
    changed = [str(other) if word == str(folder) else word for word in resumed]
    assert main(changed) == 2
    assert "error[run-changed]" in capsys.readouterr().err
    folder.rename(tmp_path / "moved")
    assert main(resumed) == 0
    ended = sorted((tmp_path / "half/checkpoints").glob("*.npz"))[-1]
    assert_same(loaded(ended), loaded(whole))
    assert main([*resumed[:4], str(tmp_path / "new"), *resumed[5:-2]]) == 2
    assert "error[file-missing]" in capsys.readouterr().err


def test_another_vocabulary_or_tokenizer_is_refused(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = replace(SHAPES["llama-test"], vocabulary=300)
    for number, (base, extra, code) in enumerate([
        (write(tmp_path / "larger", network_of(shape)), [], "data-mismatch"),
        (write(tmp_path / "other", network_of(SHAPES["llama-test"])), [], "data-mismatch"),
        (tmp_path / "other", ["--model", "llama-5m"], "arguments-conflict"),
    ]):
        (base / "tokenizer.json").write_text("{}")
        words = ["train", "--data", str(text), "--out", str(tmp_path / f"run{number}"), "--initial",
                 str(base), "--sequence", "32", "--batch-size", "16", "--device", "cpu", *extra]
        assert main(words) == (2 if extra else 3)
        assert f"error[{code}]" in capsys.readouterr().err
        assert not (tmp_path / f"run{number}").exists()

"""Continue texts: choose a token from the logits of the decoder, which then reads this token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from language_model.cache import Cache
from language_model.model import seed_of
from language_model.steps import Network

PASS = 1024
"""Largest number of tokens in a pass that reads prompts; for GPT-2, their logits need 200 MB."""


@dataclass(frozen=True)
class Method:
    """The rule by which the next token is chosen.

    Attributes:
        tokens: the largest number of tokens to add to a prompt.
        temperature: divisor of the logits; 0: choose the token with the largest logit.
        top_k: number of tokens with the largest logits, among which the next one is chosen (Fan,
            Lewis and Dauphin, arXiv:1805.04833; Radford et al., "Language Models are Unsupervised
            Multitask Learners", 2019); 0: all.
        seed: seed of the random numbers.
        end: the token that ends a text; None if no token does.
    """

    tokens: int
    temperature: float = 1.0
    top_k: int = 0
    seed: int = 0
    end: int | None = None


@torch.no_grad()
def continue_prompts(
    network: Network, prompts: Sequence[Sequence[int]], method: Method, first: int = 0,
    on_token: Callable[[], None] = lambda: None,
) -> list[list[int]]:
    """Return the tokens that follow each prompt; the last one is `method.end` if it was chosen.

    The data ranks divide the prompts, and all ranks return all results. The random numbers of a
    prompt depend only on the seed, the number of the prompt and the position in its continuation.
    Therefore a continuation does not depend on the other prompts or on the layout, except for the
    rounding of the logits.

    Args:
        network: the network, in a layout without pipeline and without context parallelism.
        prompts: tokens of each prompt, at least one.
        method: how tokens are chosen.
        first: number of the first prompt.
        on_token: function that is called after each pass that adds a token to all prompts.
    """
    strategy, stage = network.strategy, network.stages[0].eval()
    index, ranks = network.part
    # Ranks for which no prompt is left continue the last one, because all ranks run all passes.
    rounds = -(-len(prompts) // ranks)
    own = [min(turn * ranks + index, len(prompts) - 1) for turn in range(rounds)]
    longest = max(map(len, prompts))
    draws = torch.stack([uniform(method, first + at) for at in own]).to(strategy.device)
    stage.cache = Cache(longest + method.tokens)
    try:
        logits, last = _read(network, [prompts[at] for at in own], longest)
        found = torch.empty(len(own), method.tokens, dtype=torch.int64, device=strategy.device)
        running = torch.ones(len(own), dtype=torch.bool, device=strategy.device)
        for place in range(method.tokens):
            chosen = choose(logits, method, draws[:, place])
            found[:, place] = chosen
            running &= chosen != (-1 if method.end is None else method.end)
            on_token()
            if place + 1 == method.tokens or not strategy.any(bool(running.any())):
                break
            # A text that has ended is read no further: its last slot is filled again.
            last = last + running
            logits = _logits(network, chosen[:, None], last[:, None])
    finally:
        stage.cache = None
    rows = found[:, : place + 1].tolist()
    results = {at: _until(row, method.end) for at, row in zip(own, rows, strict=True)}
    merged = {at: row for part in strategy.gather(results) for at, row in part.items()}
    return [merged[at] for at in range(len(prompts))]


def _until(tokens: list[int], end: int | None) -> list[int]:
    """Return `tokens` up to and including the first `end`."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


def _read(
    network: Network, prompts: Sequence[Sequence[int]], longest: int
) -> tuple[Tensor, Tensor]:
    """Read prompts, in several passes if they are long.

    While longer prompts have further tokens, the last token of a shorter prompt is read repeatedly
    at the same position.

    Args:
        network: the network, whose cache is empty.
        prompts: the prompts of this rank.
        longest: length of the longest prompt of all ranks.

    Returns:
        The logits of the token after each prompt, (prompts, vocabulary), and the position of its
        last token, (prompts,).
    """
    device = network.strategy.device
    tokens = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(prompt, device=device) for prompt in prompts], batch_first=True
    )
    last = torch.tensor([len(prompt) - 1 for prompt in prompts], device=device)
    each = max(1, PASS // len(prompts))
    for start in range(0, longest, each):
        places = torch.arange(start, min(start + each, longest), device=device)
        positions = torch.minimum(places, last[:, None])
        logits = _logits(network, tokens.gather(1, positions), positions)
    return logits, last


def _logits(network: Network, tokens: Tensor, positions: Tensor) -> Tensor:
    """Return the logits after the last of `tokens`, (sequences, vocabulary), on all tensor ranks.

    Between the matrix products, the tensor ranks divide the tokens of a pass among them. If the
    number of tokens is not a multiple of the number of ranks, the last token is repeated.

    Args:
        network: the network.
        tokens: the tokens to read, (sequences, tokens).
        positions: their positions, of the same shape.
    """
    device, half = network.strategy.device, network.layout.half
    more = -tokens.shape[1] % network.layout.tensor
    tokens, positions = (
        torch.cat([part, part[:, -1:].expand(-1, more)], 1) for part in (tokens, positions)
    )
    with torch.autocast(device.type, half, enabled=half is not None):
        logits = network.stages[0](tokens, positions)[:, -1]
    return (logits.full_tensor() if isinstance(logits, DTensor) else logits).float()


def choose(logits: Tensor, method: Method, draws: Tensor) -> Tensor:
    """Return the next token of each sequence, (sequences,).

    Args:
        logits: logits of all tokens, (sequences, vocabulary).
        method: how tokens are chosen.
        draws: a random number in [0, 1) for each sequence, (sequences,), in double precision. The
            chosen token is the first at which the cumulative probability exceeds this number.
    """
    if method.temperature == 0:
        return logits.argmax(-1)
    count = min(method.top_k or logits.shape[-1], logits.shape[-1])
    values, candidates = logits.topk(count)
    # The largest logit becomes 0 first, so that no small temperature makes it infinite.
    values = values.double()
    sums = ((values - values[:, :1]) / method.temperature).softmax(-1).cumsum(-1)
    place = torch.searchsorted(sums, draws[:, None] * sums[:, -1:], right=True)
    return candidates.gather(1, place.clamp(max=count - 1)).squeeze(1)


def uniform(method: Method, number: int) -> Tensor:
    """Return the random numbers of prompt `number`, (tokens,), in double precision."""
    generator = torch.Generator().manual_seed(seed_of(method.seed, f"prompt {number}"))
    return torch.rand(method.tokens, generator=generator, dtype=torch.float64)

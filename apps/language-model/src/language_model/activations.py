"""Formulas for the bytes that a rank keeps between forward and backward pass of a micro-batch.

The method follows Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
Models", arXiv:2205.05198: section 4.1 adds the tensors that each operation of a block keeps,
section 4.2 divides them by the tensor ranks, and section 5 leaves out the tensors that the backward
pass computes again. The paper assumes 16-bit hidden states, and attention that keeps its products.
This module counts the operations of `model.py`: fused attention (Dao et al., arXiv:2205.14135)
keeps no products, the hidden states between the blocks are in fp32 except with FSDP, and autocast
makes copies in the type of the matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass

from language_model.layout import Layout
from language_model.shapes import Shape

FULL, HALF = 4, 2  # bytes of a number


@dataclass(frozen=True)
class Activations:
    """The bytes of activations per token on a rank: kept for the backward pass, or temporary.

    Each context rank processes a part of the tokens of a sequence. Tensor ranks process the same
    tokens; the bytes are counted for one tensor rank.

    Args:
        shape: shape of the whole decoder.
        layout: how the work is divided.
        sequence: tokens of a whole sequence.
        masked: whether tokens see only tokens of their own document.
        adapted: whether only the matrices A and B of a low-rank adaptation (LoRA) are trained. The
            products with A are not counted, because they have only `rank` values per token.
    """

    shape: Shape
    layout: Layout
    sequence: int
    masked: bool
    adapted: bool = False

    @property
    def product(self) -> int:
        """The size of one element of a matrix product in bytes."""
        return FULL if self.layout.half is None else HALF

    @property
    def hidden_state(self) -> int:
        """The size of one element of the hidden states between the blocks in bytes.

        FSDP casts all weights, including the token embedding, so that the hidden states have the
        type of the matrix products. Autocast casts only the inputs of matrix products.
        """
        return self.product if self.layout.divides_weights else FULL

    @property
    def boundary(self) -> float:
        """The bytes of a token's hidden state between two blocks on each tensor-parallel rank.

        They are divided by the number of these ranks.
        """
        return self.shape.width * self.hidden_state / self.layout.tensor

    @property
    def kept(self) -> float:
        """The bytes that a block keeps for a token, which depend on the option `--recompute`."""
        return {"none": self.block, "selective": self._products, "full": self.boundary}[
            self.layout.recompute
        ]

    @property
    def block(self) -> float:
        """The bytes that a block keeps for a token without recomputation.

        These are the bytes of both norms, the attention with all its layers, and the feed-forward
        network.
        """
        return self._norms + self._attention + self._units * self.product * 2

    @property
    def norm(self) -> float:
        """The bytes that a norm keeps for a token.

        Both norms keep their input. RMSNorm multiplies by its weight in a separate operation, which
        also keeps the normalized values if the weight is trained.
        """
        if self.shape.family == "gpt2":
            return self.boundary
        arrays = 1 if self.adapted else 2
        return arrays * FULL * self.shape.width / self.layout.tensor

    @property
    def _norms(self) -> float:
        """The bytes that both norms and the inputs of the matrix products need for a token.

        Each tensor rank holds these inputs as a whole. Autocast makes a copy of an fp32 input for
        each product.
        """
        products = 4 if self.shape.family == "gpt2" else 5
        copies = products if self.product < self.hidden_state else 2
        return 2 * self.norm + copies * self.shape.width * self.product

    @property
    def _units(self) -> float:
        """The number of values in the hidden layer of the feed-forward network, per token and rank.

        Llama computes two matrices for this layer, and the values of both count.
        """
        number = self.shape.hidden * (1 if self.shape.family == "gpt2" else 2)
        return number / self.layout.tensor

    @property
    def _attention(self) -> float:
        """The bytes of queries, keys, values, results, mask, and log-sum-exp in fp32, for a token.

        Llama also keeps a copy of the results in the memory order that its output layer reads.
        """
        shape, tensor = self.shape, self.layout.tensor
        results = shape.width * (2 if shape.family == "gpt2" else 3)
        keys = 2 * shape.key_heads * shape.head_width * self.layout.context
        return (self.product * (results + keys) + FULL * shape.heads) / tensor + self.mask

    @property
    def mask(self) -> float:
        """The bytes of the attention mask for one token.

        The value is 0 if no explicit mask is needed: if `masked` is false, and context parallelism
        does not divide the sequences.
        """
        explicit = self.masked or self.layout.context > 1
        return self.sequence * self.product if explicit else 0.0

    @property
    def _products(self) -> float:
        """The bytes that a block keeps for a token with selective recomputation.

        The block keeps its input, and the results of its attention and of every second matrix
        product: the queries, the values and the first product of the feed-forward network. Llama
        also keeps the last product, which has full width on each tensor rank, because the ranks
        hold summands of it. A layer with a low-rank adaptation has three products, W x, A x and
        B A x. The first and the last are as wide as the result of the layer, and both are counted.
        """
        shape, tensor = self.shape, self.layout.tensor
        divided = shape.width + shape.key_heads * shape.head_width + shape.hidden
        whole = 0 if shape.family == "gpt2" else shape.width
        numbers = (divided / tensor + whole) * (2 if self.adapted else 1) + shape.width / tensor
        return self.boundary + numbers * self.product + FULL * shape.heads / tensor

    @property
    def working(self) -> float:
        """The bytes per token of the temporary values in the backward pass of a block.

        These values are the gradients of the hidden units and of two hidden states, and with
        recomputation also the values of the block that were not kept.
        """
        gradients = self._units * self.product + 2 * FULL * self.shape.width
        return gradients + (self.block - self.kept if self.layout.recompute != "none" else 0)

    @property
    def head(self) -> float:
        """The bytes that the last norm and a trained output layer keep for a token."""
        return self.norm + (0 if self.adapted else self.shape.width * self.product)

    @property
    def logits(self) -> float:
        """The bytes of the logits of a token, in the type of the matrix products."""
        return self.shape.vocabulary * self.product / self.layout.tensor

    @property
    def probabilities(self) -> float:
        """The bytes of the log-probabilities of a token, which the loss keeps in fp32."""
        return self.shape.vocabulary * FULL / self.layout.tensor

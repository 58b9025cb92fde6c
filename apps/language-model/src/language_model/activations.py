"""The bytes that a micro-batch keeps on a rank from its forward to its backward pass, by formula.

The method is that of Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
Models", arXiv:2205.05198: section 4.1 adds the tensors that each operation of a block keeps,
section 4.2 divides them by the tensor ranks, and section 5 leaves out those that are computed
again. The paper counts 16-bit hidden states, and attention that keeps its products. This module
counts the operations of `model.py`: fused attention (Dao et al., arXiv:2205.14135) keeps no
products, the hidden states between the blocks are in fp32 except with FSDP, and autocast makes
copies in the type of the matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass

from language_model.layout import Layout
from language_model.shapes import Shape

FULL, HALF = 4, 2  # bytes of a number


@dataclass(frozen=True)
class Activations:
    """The bytes that each token of a rank keeps, and those that its passes need in between.

    A rank of a context axis has a part of the tokens of a sequence. Tensor ranks share tokens: the
    bytes are those that one of them keeps for a token.

    Args:
        shape: shape of the whole decoder.
        layout: how the work is divided.
        sequence: tokens of a whole sequence.
        masked: whether tokens see only tokens of their own document.
        adapted: whether only the products of a low-rank adaptation are trained. The values of the
            width of their rank, which are few, are not counted.
    """

    shape: Shape
    layout: Layout
    sequence: int
    masked: bool
    adapted: bool = False

    @property
    def product(self) -> int:
        """The bytes of a number of the matrix products."""
        return FULL if self.layout.half is None else HALF

    @property
    def hidden_state(self) -> int:
        """The bytes of a number of the hidden states between the blocks.

        FSDP casts the weights, also the token embedding, and so the hidden states. Autocast casts
        the inputs of matrix products only.
        """
        return self.product if self.layout.divides_weights else FULL

    @property
    def boundary(self) -> float:
        """The bytes of the hidden state of a token between two blocks; tensor ranks divide it."""
        return self.shape.width * self.hidden_state / self.layout.tensor

    @property
    def kept(self) -> float:
        """What a block keeps for a token, by --recompute."""
        return {"none": self.block, "selective": self._products, "full": self.boundary}[
            self.layout.recompute
        ]

    @property
    def block(self) -> float:
        """What all operations of a block keep for a token.

        Both norms; queries, keys, values, attention and its output layer; the feed-forward network.
        """
        return self._norms + self._attention + self._units * self.product * 2

    @property
    def norm(self) -> float:
        """What a norm keeps: its input, and the quotient that a trained weight multiplies.

        RMSNorm multiplies the weight in an operation of its own, LayerNorm does not.
        """
        if self.shape.family == "gpt2":
            return self.boundary
        arrays = 1 if self.adapted else 2
        return arrays * FULL * self.shape.width / self.layout.tensor

    @property
    def _norms(self) -> float:
        """The norms, and the inputs of matrix products, which each tensor rank has as a whole.

        Autocast makes a copy of the fp32 input for each product.
        """
        products = 4 if self.shape.family == "gpt2" else 5
        copies = products if self.product < self.hidden_state else 2
        return 2 * self.norm + copies * self.shape.width * self.product

    @property
    def _units(self) -> float:
        """The number of hidden units of a token on a rank; Llama has those of two matrices."""
        number = self.shape.hidden * (1 if self.shape.family == "gpt2" else 2)
        return number / self.layout.tensor

    @property
    def _attention(self) -> float:
        """Queries, keys, values and results, and the logarithm of each head's sum in fp32.

        Llama also keeps the results in the order of its output layer.
        """
        shape, tensor = self.shape, self.layout.tensor
        results = shape.width * (2 if shape.family == "gpt2" else 3)
        keys = 2 * shape.key_heads * shape.head_width * self.layout.context
        return (self.product * (results + keys) + FULL * shape.heads) / tensor + self.mask

    @property
    def mask(self) -> float:
        """The bytes of the mask of a token: 0 unless `masked` is true or sequences are divided."""
        explicit = self.masked or self.layout.context > 1
        return self.sequence * self.product if explicit else 0.0

    @property
    def _products(self) -> float:
        """The input of a block, and the results of its attention and every second product.

        These products are queries, values, and the first of the feed-forward network; in Llama
        also the last, whose summands tensor ranks hold undivided. An adapted layer has three
        products, and the first and the last of them are as wide as its result.
        """
        shape, tensor = self.shape, self.layout.tensor
        divided = shape.width + shape.key_heads * shape.head_width + shape.hidden
        whole = 0 if shape.family == "gpt2" else shape.width
        numbers = (divided / tensor + whole) * (2 if self.adapted else 1) + shape.width / tensor
        return self.boundary + numbers * self.product + FULL * shape.heads / tensor

    @property
    def working(self) -> float:
        """What the backward pass of a block has for a token beside the values that are kept.

        The gradients of the hidden units and of two hidden states; with recomputation, also the
        values of a block that were not kept.
        """
        gradients = self._units * self.product + 2 * FULL * self.shape.width
        return gradients + (self.block - self.kept if self.layout.recompute != "none" else 0)

    @property
    def head(self) -> float:
        """What the last norm, and the output layer if it is trained, keep for a token."""
        return self.norm + (0 if self.adapted else self.shape.width * self.product)

    @property
    def logits(self) -> float:
        """The bytes of the logits of a token, in the type of the matrix products."""
        return self.shape.vocabulary * self.product / self.layout.tensor

    @property
    def probabilities(self) -> float:
        """The bytes of the log-probabilities of a token, which the loss keeps in fp32."""
        return self.shape.vocabulary * FULL / self.layout.tensor

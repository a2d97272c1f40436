"""FLOPs and bytes of a transformer, from its shape.

Per layer and token, in the forward pass, over the whole model:

    projections   2 x parameters of attention: h (2h + 2h k/a) for query, output, key and value
    attention     4 s h: scores and their sum over s tokens (not halved for the causal mask)
    MLP           2 x parameters that a token uses: 3 h f gated, 2 h f plain, times top_k experts

and 2 h V for the logits, once. The backward pass is twice the forward pass. Recomputed activations are not
model FLOPs and are not run. h hidden size, a heads, k key/value heads, f MLP size, s sequence, V vocabulary.

Source of the formula: PaLM (2022), appendix B (6N + 12 L H Q T per token, N the parameters); of the shapes:
The Llama 3 Herd of Models, table 3; Language Models are Few-Shot Learners (GPT-3), table 2.1; Mixtral of
Experts (2024), table 1.

Not modelled: embeddings (a look-up), norms, activation functions, routers, the optimizer's step.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Model(NamedTuple):
    """A transformer's shape."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    sequence: int
    gated: bool = True
    """Whether the MLP is gated (three matrices, not two)."""
    experts: int = 1
    top_k: int = 1
    """Experts that a token uses."""

    def attention_parameters(self) -> int:
        """Of one layer."""
        return self.hidden * (2 * self.hidden + 2 * self.hidden * self.kv_heads // self.heads)

    def expert_parameters(self) -> int:
        """Of the MLP of one layer, or of one expert of it."""
        return (3 if self.gated else 2) * self.hidden * self.ffn

    def layer_parameters(self) -> int:
        """Of one layer, all experts counted."""
        return self.attention_parameters() + self.experts * self.expert_parameters()

    def attention_flops(self, tokens: int) -> int:
        """Forward, of one layer's attention with its projections, over so many tokens."""
        return tokens * (2 * self.attention_parameters() + 4 * self.sequence * self.hidden)

    def mlp_flops(self, tokens: int) -> int:
        """Forward, of one layer's MLP, over so many tokens."""
        return tokens * 2 * self.top_k * self.expert_parameters()

    def head_flops(self, tokens: int) -> int:
        """Forward, of the logits, over so many tokens."""
        return tokens * 2 * self.hidden * self.vocab

    def step_flops(self, tokens: int) -> int:
        """Forward and backward, of the whole model, over so many tokens."""
        layer = self.attention_flops(tokens) + self.mlp_flops(tokens)
        return 3 * (self.layers * layer + self.head_flops(tokens))


PRESETS: Final = {
    "llama3-8b": Model(32, 4096, 32, 8, 14336, 128256, 8192),
    "llama3-70b": Model(80, 8192, 64, 8, 28672, 128256, 8192),
    "llama3-405b": Model(126, 16384, 128, 8, 53248, 128256, 8192),
    "gpt3-175b": Model(96, 12288, 96, 96, 49152, 50257, 2048, gated=False),
    "mixtral-8x7b": Model(32, 4096, 32, 8, 14336, 32000, 8192, experts=8, top_k=2),
}
"""Name -> shape."""

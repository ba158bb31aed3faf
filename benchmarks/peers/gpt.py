"""GPT-2 as others write it: a compact module in the style of nanoGPT, and Hugging Face's."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attendo.config import Recipe, TransformerConfig


class CompactBlock(nn.Module):
    """Attention and feed-forward, each added to what it is given."""

    def __init__(self, width: int, n_heads: int, inner: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        heads = self.joint(self.norm_1(x)).unflatten(-1, (3, self.n_heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        hidden = functional.gelu(self.inner(self.norm_2(x)))
        return x + self.outer(hidden)


class CompactGpt(nn.Module):
    """Token and position embeddings, blocks, a norm and a tied output layer."""

    def __init__(self, recipe: Recipe, vocabulary: int) -> None:
        super().__init__()
        config = recipe.model
        assert isinstance(config, TransformerConfig)
        self.tokens = nn.Embedding(vocabulary, config.d_model)
        self.positions = nn.Embedding(recipe.data.max_length, config.d_model)
        self.blocks = nn.ModuleList(
            CompactBlock(config.d_model, config.n_heads, config.d_ff)
            for _ in range(config.decoder_layers)
        )
        self.norm = nn.LayerNorm(config.d_model)
        self.output = nn.Linear(config.d_model, vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        self.output.weight = self.tokens.weight

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss."""
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.output(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class HuggingFaceGpt(nn.Module):
    """`GPT2LMHeadModel`."""

    def __init__(self, recipe: Recipe, vocabulary: int) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        config = recipe.model
        assert isinstance(config, TransformerConfig)
        options: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        self.model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocabulary,
                n_positions=recipe.data.max_length,
                n_embd=config.d_model,
                n_layer=config.decoder_layers,
                n_head=config.n_heads,
                n_inner=config.d_ff,
                use_cache=False,
                attn_implementation="sdpa",
                **options,
            )
        )

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss."""
        logits = self.model(ids).logits
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class GptPeer:
    """A peer that is trained as its users train it: compiled, bf16, fused AdamW."""

    def __init__(
        self,
        name: str,
        model: nn.Module,
        batches: list[tuple[Tensor, Tensor]],
        device: torch.device,
        *,
        compiled: bool,
    ) -> None:
        self.name = name
        self.device = device
        self.model = model.to(device).train()
        self.n_parameters = sum(weight.numel() for weight in self.model.parameters())
        self.loss: Any = torch.compile(self.model) if compiled else self.model
        self.batches = [(ids.to(device), labels.to(device)) for ids, labels in batches]
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), 1e-4, betas=(0.9, 0.95), fused=True
        )
        self.n_steps = 0

    def step(self) -> int:
        """Learn from the next batch; returns its number of tokens."""
        ids, labels = self.batches[self.n_steps % len(self.batches)]
        self.n_steps += 1
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            loss = self.loss(ids, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return ids.numel()

    def warm_up(self) -> None:
        """Run some steps that are not measured."""
        for _ in range(5):
            self.step()

    def figures(self, seconds: float) -> dict[str, Any]:
        """Return nothing: all positions hold tokens."""
        return {"target_fill": 1.0}

    def close(self) -> None:
        """Do nothing: no process is left running."""

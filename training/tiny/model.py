"""`tiny` as a module to train: `qwen3_5_moe_text` and its MTP layer, whole rows at once.

Parameters have the names of the checkpoint, so that the state dict is the export. Documents share a
row: `positions` [B, T] count from 0 in each, attention stays within one, a gate of -100 empties
the state at its first token and the convolution sees nothing before it.
B batch, T tokens, H heads, D head width, C hidden, E experts, I their width, V vocabulary.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.tiny.chunk import RESET_GATE, gated_delta
from training.tiny.shape import Shape


class Norm(nn.Module):
    """RMSNorm around one: (1 + weight) x / rms(x), in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float() if x.dtype != torch.float64 else x
        wide = wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (wide * (1 + self.weight)).to(x.dtype)


class GatedNorm(nn.Module):
    """weight x / rms(x) times silu(gate): the plain weight of the delta net's output."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        x = x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (self.weight * x * F.silu(gate.to(x.dtype))).to(gate.dtype)


class Rows:
    """What all layers share of a batch of rows: who may see whom, and where each token stands."""

    def __init__(self, positions: Tensor, shape: Shape) -> None:
        """positions [B, T] int, from 0 in each document."""
        self.positions = positions
        self.starts = positions == 0
        documents = self.starts.cumsum(1)
        same = documents[:, :, None] == documents[:, None, :]
        self.visible = same.tril()[:, None]  # [B, 1, T, T]
        half = torch.arange(0, shape.rotary_dim, 2, device=positions.device).double()
        frequencies = shape.rope_theta ** (-half / shape.rotary_dim)
        # Drafts reach three positions further than the row.
        angles = torch.arange(positions.shape[1] + 4, device=positions.device).double()
        angles = angles[:, None] * frequencies
        self._table = angles.cos().float(), angles.sin().float()

    def rotate(self, x: Tensor, ahead: int = 0) -> Tensor:
        """x [B, T, H, D]: its first dimensions turned by the positions, `ahead` further on."""
        at = self.positions + ahead
        cos, sin = (table[at][:, :, None].to(x.dtype) for table in self._table)
        size = cos.shape[-1]
        first, second, rest = x[..., :size], x[..., size : 2 * size], x[..., 2 * size :]
        return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


class Attention(nn.Module):
    """Heads with normalised q and k, a part of them rotated, and a gate on what they return."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.num_heads, self.head_dim = shape.num_attention_heads, shape.head_dim
        width, kv_width = self.num_heads * self.head_dim, shape.num_key_value_heads * self.head_dim
        self.q_proj = _linear(shape.hidden_size, 2 * width)
        self.k_proj = _linear(shape.hidden_size, kv_width)
        self.v_proj = _linear(shape.hidden_size, kv_width)
        self.o_proj = _linear(width, shape.hidden_size)
        self.q_norm = Norm(self.head_dim, shape.rms_norm_eps)
        self.k_norm = Norm(self.head_dim, shape.rms_norm_eps)

    def project(self, x: Tensor, rows: Rows, ahead: int = 0) -> tuple[Tensor, ...]:
        """q, gate [B, T, H, D] and k, v [B, T, Hkv, D]."""
        q, gate = self.q_proj(x).unflatten(-1, (self.num_heads, -1)).chunk(2, dim=-1)
        k, v = (p(x).unflatten(-1, (-1, self.head_dim)) for p in (self.k_proj, self.v_proj))
        q, k = self.q_norm(q), self.k_norm(k)
        return rows.rotate(q, ahead), gate, rows.rotate(k, ahead), v

    def attend(
        self, q: Tensor, gate: Tensor, past: tuple[Tensor, Tensor], own: list, rows: Rows
    ) -> Tensor:
        """Of the k, v in `past` a token sees those up to its own place, of each pair in `own`
        (drafts before it in its chain) only that of its own place."""
        q, k, v = (x.transpose(1, 2) for x in (q, *past))
        own = [tuple(x.transpose(1, 2) for x in pair) for pair in own]
        scale = self.head_dim**-0.5
        group = q.shape[1] // k.shape[1]
        q = (q * scale).unflatten(1, (-1, group))  # [B, Hkv, r, T, D]
        scores = torch.matmul(q.flatten(2, 3), k.mT).unflatten(2, (group, -1))
        scores = scores.masked_fill(~rows.visible[:, :, None], -torch.inf)
        single = [(q * k_own[:, :, None]).sum(-1, keepdim=True) for k_own, _ in own]
        top = scores.amax(-1, keepdim=True)
        for score in single:
            top = torch.maximum(top, score)
        top = top.detach()
        wide = torch.promote_types(scores.dtype, torch.float32)
        weights = (scores.to(wide) - top).exp()
        total = weights.sum(-1, keepdim=True)
        out = torch.matmul(weights.to(v.dtype).flatten(2, 3), v).unflatten(2, (group, -1))
        for score, (_, v_own) in zip(single, own, strict=True):
            weight = (score.to(wide) - top).exp()
            total = total + weight
            out = out + weight.to(v.dtype) * v_own[:, :, None]
        out = (out / total.to(out.dtype)).flatten(1, 2).transpose(1, 2)
        return self.o_proj((out * torch.sigmoid(gate)).flatten(-2))

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        q, gate, k, v = self.project(x, rows)
        return self.attend(q, gate, (k, v), [], rows)


class DeltaNet(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.key_dim, self.value_dim = shape.key_dim, shape.value_dim
        self.head_dim, num_heads = shape.linear_key_head_dim, shape.linear_num_value_heads
        channels = 2 * self.key_dim + self.value_dim
        self.in_proj_qkv = _linear(shape.hidden_size, channels)
        self.in_proj_z = _linear(shape.hidden_size, self.value_dim)
        self.in_proj_b = _linear(shape.hidden_size, num_heads)
        self.in_proj_a = _linear(shape.hidden_size, num_heads)
        width = shape.linear_conv_kernel_dim
        self.conv1d = nn.Conv1d(channels, channels, width, groups=channels, bias=False)
        # The family draws A uniformly. Its training kernels draw the step (the softplus) from 0.001
        # to 0.1 evenly in the logarithm, its published configuration starts all steps at 1.3: here
        # heads that keep for a thousand tokens and heads that forget at once are both among four.
        self.A_log = nn.Parameter(torch.empty(num_heads).uniform_(0.01, 16).log())
        step = torch.empty(num_heads).uniform_(math.log(0.001), math.log(1.3)).exp()
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.norm = GatedNorm(shape.linear_value_head_dim, shape.rms_norm_eps)
        self.out_proj = _linear(self.value_dim, shape.hidden_size)

    def forward(self, x: Tensor, rows: Rows) -> Tensor:
        mixed = F.silu(self._convolve(self.in_proj_qkv(x), rows.positions))
        z = self.in_proj_z(x).unflatten(-1, (-1, self.norm.weight.shape[0]))
        with torch.autocast(x.device.type, enabled=False):
            wide = torch.promote_types(mixed.dtype, torch.float32)
            q, k, v = mixed.to(wide).split([self.key_dim, self.key_dim, self.value_dim], dim=-1)
            q, k, v = (x.unflatten(-1, (-1, self.head_dim)) for x in (q, k, v))
            q, k = _unit(q) * self.head_dim**-0.5, _unit(k)
            g, beta = self.gates(x.to(wide), rows)
            out = gated_delta(q, k, v, g, beta)
            out = self.norm(out, z)
        return self.out_proj(out.flatten(-2))

    def gates(self, x: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """g and beta [B, T, Hv] of x in float32 or wider."""
        step = F.softplus(F.linear(x, self.in_proj_a.weight) + self.dt_bias)
        g = (-self.A_log.exp() * step).clamp(min=RESET_GATE)
        g = g.masked_fill(rows.starts[..., None], RESET_GATE)
        return g, torch.sigmoid(F.linear(x, self.in_proj_b.weight))

    def _convolve(self, x: Tensor, positions: Tensor) -> Tensor:
        weight = self.conv1d.weight[:, 0].to(x.dtype)  # [C, width], the last one the token's own
        out = x * weight[:, -1]
        for back in range(1, weight.shape[1]):
            earlier = F.pad(x, (0, 0, back, 0))[:, : x.shape[1]]
            earlier = earlier.masked_fill((positions < back)[..., None], 0)
            out = out + earlier * weight[:, -1 - back]
        return out


class Mlp(nn.Module):
    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = _linear(hidden, width), _linear(hidden, width)
        self.down_proj = _linear(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    """All experts as one product each way, what was not chosen weighed with 0: with sixteen of them
    that is four times the arithmetic and none of the sorting."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        experts, hidden, width = shape.num_experts, shape.hidden_size, shape.moe_intermediate_size
        self.gate_up_proj = nn.Parameter(torch.randn(experts, 2 * width, hidden))
        self.down_proj = nn.Parameter(torch.randn(experts, hidden, width))

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        """x [N, C], weights [N, E]."""
        experts, twice = self.gate_up_proj.shape[:2]
        gate, up = (
            F.linear(x, self.gate_up_proj.flatten(0, 1)).view(-1, experts, twice).chunk(2, -1)
        )
        inner = F.silu(gate) * up * weights[..., None].to(x.dtype)
        return torch.matmul(inner.flatten(1), self.down_proj.mT.flatten(0, 1).to(inner.dtype))


class SparseMlp(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        hidden = shape.hidden_size
        self.top_k = shape.num_experts_per_tok
        self.gate = _linear(hidden, shape.num_experts)
        self.experts = Experts(shape)
        self.shared_expert = Mlp(hidden, shape.shared_expert_intermediate_size)
        self.shared_expert_gate = _linear(hidden, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """-> output, and the balance loss: E times the sum over experts of the share of tokens
        that chose one and its mean probability, 1 when all are used alike."""
        shape, x = x.shape, x.flatten(0, 1)
        with torch.autocast(x.device.type, enabled=False):
            wide = torch.promote_types(x.dtype, torch.float32)
            probability = F.linear(x.to(wide), self.gate.weight).softmax(-1)
        top, chosen = probability.topk(self.top_k, dim=-1)
        weights = torch.zeros_like(probability).scatter(-1, chosen, top / top.sum(-1, keepdim=True))
        share = (weights > 0).to(wide).mean(0) / self.top_k
        balance = (share * probability.mean(0)).sum() * share.shape[0]
        shared = torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        return (self.experts(x, weights) + shared).view(shape), balance


class Layer(nn.Module):
    def __init__(self, shape: Shape, *, is_attention: bool) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = Norm(shape.hidden_size, shape.rms_norm_eps)
        if is_attention:
            self.self_attn = Attention(shape)
        else:
            self.linear_attn = DeltaNet(shape)
        self.mlp = SparseMlp(shape)
        self.is_attention = is_attention

    def forward(self, x: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        mixer = self.self_attn if self.is_attention else self.linear_attn
        return self.feed(x + mixer(self.input_layernorm(x), rows))

    def feed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        out, balance = self.mlp(self.post_attention_layernorm(x))
        return x + out, balance


class Trunk(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(
            Layer(shape, is_attention=shape.is_attention(i)) for i in range(shape.num_hidden_layers)
        )
        self.norm = Norm(shape.hidden_size, shape.rms_norm_eps)


class Mtp(nn.Module):
    """One attention layer that reads the next token's embedding and the hidden state before it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.fc = _linear(2 * shape.hidden_size, shape.hidden_size)
        self.pre_fc_norm_embedding = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.pre_fc_norm_hidden = Norm(shape.hidden_size, shape.rms_norm_eps)
        self.layers = nn.ModuleList([Layer(shape, is_attention=True)])
        self.norm = Norm(shape.hidden_size, shape.rms_norm_eps)

    def forward(
        self, hidden: Tensor, embedded: list[Tensor], rows: Rows
    ) -> tuple[list[Tensor], Tensor]:
        """Hidden states [B, T, C] of each draft step, and the balance loss. `embedded[s]` holds
        the embeddings of the tokens s + 1 further on; at place i step s drafts token i + s + 2.

        Step 0 leaves the keys that a server keeps; a later step of the chain that began at i sees
        those up to i, and those of its own chain.
        """
        layer, states, own, balances = self.layers[0], [], [], []
        past: tuple[Tensor, Tensor] | None = None
        for step, embedding in enumerate(embedded):
            both = [self.pre_fc_norm_embedding(embedding), self.pre_fc_norm_hidden(hidden)]
            x = self.fc(torch.cat([part.to(embedding.dtype) for part in both], dim=-1))
            q, gate, k, v = layer.self_attn.project(layer.input_layernorm(x), rows, ahead=step)
            if past is None:
                past = k, v
            else:
                own.append((k, v))
            x, balance = layer.feed(x + layer.self_attn.attend(q, gate, past, own, rows))
            hidden = self.norm(x)
            states.append(hidden)
            balances.append(balance)
        return states, torch.stack(balances).mean()


class Tiny(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Trunk(shape)
        self.mtp = Mtp(shape)
        self._start()

    def _start(self) -> None:
        """Products start at half of what keeps the variance, what ends a branch at zero: each layer
        begins as the identity."""
        for name, parameter in self.named_parameters():
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight", "down_proj")):
                nn.init.zeros_(parameter)
            elif "embed_tokens" in name:
                nn.init.normal_(parameter, std=0.02)
            elif parameter.dim() > 1 and "conv1d" not in name:
                nn.init.normal_(parameter, std=0.5 * parameter.shape[-1] ** -0.5)

    def forward(self, ids: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """ids [B, T] -> final hidden states [B, T, C] and the mean balance loss of the layers."""
        # Like a checkpoint in bfloat16, the residual stream is as narrow as autocast's products.
        x = self.model.embed_tokens(ids)
        if torch.is_autocast_enabled(ids.device.type):
            x = x.to(torch.get_autocast_dtype(ids.device.type))
        balances = []
        for layer in self.model.layers:
            x, balance = layer(x, rows)
            balances.append(balance)
        return self.model.norm(x), torch.stack(balances).mean()

    def drafts(
        self, ids: Tensor, hidden: Tensor, rows: Rows, num_steps: int
    ) -> tuple[list[Tensor], Tensor]:
        """Hidden states of `num_steps` draft steps and their balance loss; places whose tokens lie
        beyond the row or in another document hold nothing of use."""
        embedded = [
            self.model.embed_tokens(ids.roll(-1 - step, dims=1)).to(hidden.dtype)
            for step in range(num_steps)
        ]
        return self.mtp(hidden, embedded, rows)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.model.embed_tokens.weight)


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def _unit(x: Tensor) -> Tensor:
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()

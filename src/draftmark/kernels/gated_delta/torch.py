"""gated_delta in plain torch: prompts in chunks, verify rows over the checkpoint and records.

With G the running sum of g from where a state S stands and d_p known for the tokens p < i since,
token i sees e^(G_i) S^T k_i + sum_p e^(G_i - G_p) (k_p . k_i) d_p. So the d of a run of tokens
solve a unit triangular system, what came before is one product with S, and no exponential grows. G
is summed in float64: after a few gates of -100 a float32 sum is wrong by 1e-4, and so would be the
differences between tokens that hardly decay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from draftmark.kernels.gated_delta.cache import FOLD_TOKENS, DeltaCache, folded
from draftmark.kernels.gated_delta.records import GatheredRows, ListedRows, fold, state_at
from draftmark.kernels.spans import Span, write_ring

CHUNK_TOKENS = 64  # chunks lie between multiples of it
# Chunks whose triangular systems are solved together: bounds the memory of a long prompt.
_GROUP_CHUNKS = 4
_GATE_FLOOR = -100.0


def gates(a: Tensor, b: Tensor, decay: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(a.dtype, torch.float32)
    softplus = F.softplus(a.to(wide) + dt_bias.to(wide))
    return softplus.mul_(-decay.to(wide)), torch.sigmoid(b.to(wide))


def prefill(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    cache: DeltaCache,
    spans: Sequence[Span],
) -> Tensor:
    out = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    for span in spans:
        _prefill_span(out, (q, k, v, g, beta), cache, span)
    return out


def _prefill_span(
    out: Tensor,
    inputs: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    cache: DeltaCache,
    span: Span,
) -> None:
    state = state_at(cache, span.slot, span.start)
    checkpoint = folded(span.end)
    for first, num_chunks, size in _runs(span.start, span.end):
        last = first + num_chunks * size
        tokens = slice(span.offset + first - span.start, span.offset + last - span.start)
        q, k, v, g, beta = (x[tokens].to(state.dtype) for x in inputs)
        q, k, g = _unit(q).mul_(q.shape[-1] ** -0.5), _unit(k), g.clamp(min=_GATE_FLOOR)
        num_folded = max(min(last, checkpoint) - first, 0)
        o, deltas = _run(q, k, v, g, beta, state, size, num_folded)
        out[tokens] = o
    # What is not folded lies in the last run: its start is a multiple of FOLD_TOKENS or span.start.
    for ring, values in ((cache.keys, k), (cache.deltas, deltas), (cache.gates, g)):
        write_ring(ring[span.slot], first + num_folded, values[num_folded:])
    if checkpoint > folded(span.start) or span.start == 0:
        cache.state[span.slot] = state


def _runs(start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(first position, number of chunks, tokens in each): whole chunks, a part before and after."""
    while start < end:
        size = min(CHUNK_TOKENS - start % CHUNK_TOKENS, end - start)
        num_chunks = (
            min((end - start) // CHUNK_TOKENS, _GROUP_CHUNKS) if size == CHUNK_TOKENS else 1
        )
        yield start, num_chunks, size
        start += num_chunks * size


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    state: Tensor,
    size: int,
    num_folded: int,
) -> tuple[Tensor, Tensor]:
    """n chunks of c = size tokens, normalised and in W -> o, deltas [n c, Hv, Dv]; `state`
    [Hv, Dk, Dv] moves on by `num_folded` tokens: all of them, or fewer in the last run."""
    num_heads, key_heads = v.shape[1], k.shape[1]
    # [n c, H, D] -> [n, H, c, D]
    q, k, v = (x.view(-1, size, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
    beta = beta.view(-1, size, num_heads).transpose(1, 2)[..., None]
    total = g.double().view(-1, size, num_heads).cumsum(1).transpose(1, 2)  # [n, Hv, c]
    decay = _decay(total, total, state.dtype).unflatten(1, (key_heads, -1))
    keys = k.transpose(2, 3)
    seen = (torch.matmul(k, keys)[:, :, None] * decay).flatten(1, 2).mul_(beta)
    weights = (torch.matmul(q, keys)[:, :, None] * decay).flatten(1, 2)
    inverse = torch.linalg.solve_triangular(
        seen, torch.eye(size, dtype=seen.dtype, device=seen.device), upper=False, unitriangular=True
    )
    group = num_heads // key_heads
    entering = total.to(state.dtype).exp()[..., None]
    both = torch.cat([x.repeat_interleave(group, dim=1) * entering for x in (k, q)], dim=2)
    outs, deltas = [], []
    for i in range(v.shape[0]):
        known = torch.bmm(both[i], state)  # [Hv, 2 c, Dv]
        deltas.append(torch.bmm(inverse[i], (v[i] - known[:, :size]).mul_(beta[i])))
        outs.append(torch.baddbmm(known[:, size:], weights[i], deltas[i]))
        count = min(num_folded - i * size, size)
        if count > 0:
            fold(state, k[i, :, :count], deltas[i][:, :count], total[i, :, :count])
    return torch.cat(outs, dim=1).transpose(0, 1), torch.cat(deltas, dim=1).transpose(0, 1)


def verify(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    cache: DeltaCache,
    slots: Tensor,
    lengths: Tensor,
    folds: Tensor,
    width: int,
) -> Tensor:
    rows_of = ListedRows.of if cache.state.is_cpu else GatheredRows.of
    rows = rows_of(cache, slots, lengths, folds)
    wide, num_rows, num_heads, key_heads = cache.state.dtype, len(slots), v.shape[1], k.shape[1]
    gates = g.to(wide).clamp(min=_GATE_FLOOR)
    unit = _unit(torch.stack((k.to(wide), q.to(wide)), dim=1))  # [B w, 2, Hk, Dk]
    unit[:, 1].mul_(q.shape[-1] ** -0.5)
    both = unit.view(num_rows, width, *unit.shape[1:]).permute(0, 3, 2, 1, 4)
    wide_v = v.to(wide).view(num_rows, width, num_heads, -1).transpose(1, 2)
    beta = beta.to(wide).view(num_rows, width, num_heads, 1).transpose(1, 2)

    total = rows.gates(gates.view(num_rows, width, num_heads)).transpose(1, 2)
    total = total.cumsum(-1, dtype=torch.float64)  # [B, Hv, E + w]
    decay = _decay(total[..., FOLD_TOKENS:], total, wide)
    decay = decay.view(num_rows, key_heads, -1, 1, width, FOLD_TOKENS + width)
    seen = rows.seen(both, decay)
    out, delta = _among_new(both, decay[..., FOLD_TOKENS:], seen, wide_v, beta)

    places = rows.new_places(width)
    cache.keys.flatten(0, 1).index_copy_(0, places, unit[:, 0])
    cache.deltas.flatten(0, 1).index_copy_(0, places, delta.transpose(1, 2).flatten(0, 1))
    cache.gates.flatten(0, 1).index_copy_(0, places, gates)
    return out.transpose(1, 2).flatten(0, 1).to(v.dtype)


def _among_new(
    both: Tensor, decay: Tensor, seen: Tensor, v: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """What the new tokens of a row give each other, decay [B, Hk, r, 1, w, w], added to what they
    have seen of earlier ones: o and d, both [B, Hv, w, Dv]."""
    delta = (v - seen[:, :, 0]).mul_(beta)
    key_heads, width = both.shape[1], both.shape[3]
    if width == 1:  # a token alone: nothing to solve, nothing has decayed
        own = (both[:, :, 0] * both[:, :, 1]).sum(dim=-1, keepdim=True)[:, :, None]
        read, given = (x.unflatten(1, (key_heads, -1)) for x in (seen[:, :, 1], delta))
        return torch.addcmul(read, own, given).flatten(1, 2), delta
    scores = torch.matmul(both, both[:, :, :1].transpose(3, 4))[:, :, None] * decay
    scores = scores.flatten(1, 2)
    delta = torch.linalg.solve_triangular(
        scores[:, :, 0] * beta, delta, upper=False, unitriangular=True
    )
    return seen[:, :, 1] + torch.matmul(scores[:, :, 1], delta), delta


def _decay(later: Tensor, every: Tensor, dtype: torch.dtype) -> Tensor:
    """e^(later_i - every_j) of running sums, `later` being the last ones of `every`: [..., i, j],
    0 where j is after i. That is chosen before the exponential, which overflows there."""
    difference = (later[..., :, None] - every[..., None, :]).to(dtype)
    num_later, num_every = difference.shape[-2:]
    if num_later > 1:
        is_after = torch.ones(num_later, num_every, dtype=torch.bool, device=later.device)
        difference.masked_fill_(is_after.triu_(num_every - num_later + 1), -torch.inf)
    return difference.exp_()


def _unit(x: Tensor) -> Tensor:
    return x * x.square().sum(dim=-1, keepdim=True).add_(1e-6).rsqrt_()

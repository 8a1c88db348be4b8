"""A first own implementation of an operator, in plain torch: what "Write an example" puts into a file."""

from __future__ import annotations

from pathlib import Path

from fusescope.core import paths

NAME = "mine"
_HEAD = '"""My {title}: change the body, save, and press Run again."""\n\nimport torch\n\n\n'
_BODIES = {
    "add": "def mine(a, b):\n    return torch.add(a, b)\n",
    "gemm": "def mine(a, b):\n    return torch.mm(a, b)\n",
    "bmm": "def mine(a, b):\n    return torch.matmul(a, b)\n",
    "softmax": """\
def mine(x):
    shifted = torch.exp(x - x.amax(dim=-1, keepdim=True))
    return shifted / shifted.sum(dim=-1, keepdim=True)
""",
    "layernorm": """\
def mine(x, weight, bias, eps):
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return (x - mean) * torch.rsqrt(variance + eps) * weight + bias
""",
    "attention": """\
def mine(q, k, v, plan, bias=None):
    keep = plan.dense()
    added = bias if bias is not None else torch.zeros((), dtype=q.dtype, device=q.device)
    added = torch.where(keep, added, float("-inf")).to(q.dtype)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, added, enable_gqa=True)
""",
    "bias_gelu": """\
def mine(x, bias, approximate):
    return torch.nn.functional.gelu(x + bias, approximate=approximate)
""",
    "bias_residual_layernorm": """\
def mine(x, bias, residual, weight, shift, eps):
    total = x + bias + residual
    return torch.nn.functional.layer_norm(total, total.shape[-1:], weight, shift, eps)
""",
    "embedding_layernorm": """\
def mine(word_ids, position_ids, type_ids, word, position, type_, weight, shift, eps):
    places = position[: word_ids.shape[-1]] if position_ids is None else position[position_ids]
    total = word[word_ids] + type_[type_ids] + places
    return torch.nn.functional.layer_norm(total, total.shape[-1:], weight, shift, eps)
""",
    "linear": """\
def mine(x, weight, bias, activation, residual):
    out = torch.addmm(bias, x, weight.t())
    if activation is not None:
        out = torch.nn.functional.gelu(out, approximate="tanh" if activation == "gelu_tanh" else "none")
    return out if residual is None else out + residual
""",
    "linear_weight_only": """\
def mine(x, weight, scales, bias, activation, residual):
    out = torch.nn.functional.linear(x.float(), weight.float()) * scales + bias.float()
    if activation is not None:
        out = torch.nn.functional.gelu(out, approximate="tanh" if activation == "gelu_tanh" else "none")
    return (out if residual is None else out + residual).to(x.dtype)
""",
    "padding": """\
def mine(x, lengths, cu_seqlens, seq, total, direction):
    keep = torch.arange(seq, device=x.device) < lengths[:, None]
    if direction == "pack":
        return x[keep]
    out = x.new_zeros((lengths.shape[0], seq, x.shape[-1]))
    out[keep] = x
    return out
""",
    "rmsnorm_residual": """\
def mine(x, weight, residual, eps):
    total = x if residual is None else x + residual
    return torch.nn.functional.rms_norm(total, total.shape[-1:], weight, eps), total
""",
    "rope_cache": """\
def mine(q, k, v, cos_sin, positions, k_cache, v_cache, block_table):
    if positions.dim() == 1:  # of each sequence's first token
        positions = positions[:, None] + torch.arange(q.shape[1], device=q.device)
    cos, sin = cos_sin[positions][:, :, None].to(q.dtype).chunk(2, -1)

    def turned(x):
        left, right = x.chunk(2, -1)
        return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)

    page = k_cache.shape[2]
    pages = torch.arange(q.shape[0], device=q.device)[:, None]
    if block_table is not None:
        pages = block_table.gather(1, positions.long() // page)
    k_cache[pages, :, positions % page] = turned(k)
    v_cache[pages, :, positions % page] = v
    return turned(q), k_cache, v_cache
""",
    "swiglu": """\
def mine(gate, up):
    if up is None:  # both in one tensor
        gate, up = gate.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up
""",
    "split_heads": """\
def mine(qkv, bias, heads, kv_heads):
    split = (qkv + bias).unflatten(-1, (heads + 2 * kv_heads, -1)).transpose(1, 2)
    return tuple(part.contiguous() for part in split.split((heads, kv_heads, kv_heads), 1))
""",
    "attention_decode": """\
def mine(q, k, v, lengths):
    keep = torch.arange(k.shape[2], device=q.device) < lengths[:, None]
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q, k, v, keep[:, None, None], enable_gqa=True).nan_to_num()  # no key: zeros
""",
    "attention_varlen": """\
def mine(q, k, v, cu_seqlens_q, cu_seqlens_k, causal):
    out = torch.empty_like(q)
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    attend = torch.nn.functional.scaled_dot_product_attention
    for a, b, c, d in zip(ends_q, ends_q[1:], ends_k, ends_k[1:]):
        if a < b:
            one = (t.transpose(0, 1)[None] for t in (q[a:b], k[c:d], v[c:d]))
            out[a:b] = attend(*one, is_causal=causal, enable_gqa=True)[0].transpose(0, 1)
    return out
""",
    "sddmm": """\
def mine(q, k, structure):
    side = structure.block or 1  # 1: single elements
    rows, columns = (-(-n // side) for n in (structure.seq_q, structure.seq_k))
    missing = (0, columns * side - structure.seq_k, 0, rows * side - structure.seq_q)
    full = torch.nn.functional.pad(q @ k.transpose(2, 3), missing)
    blocks = full.unflatten(3, (columns, side)).unflatten(2, (rows, side)).transpose(3, 4).flatten(2, 3)
    found = blocks[:, :, structure.place()]
    return found * structure.keep() if structure.block else found[..., 0, 0]
""",
    "sparse_softmax": """\
def mine(structure, values):
    keep = structure.dense(torch.ones(structure.entries, dtype=torch.bool, device=values.device))
    full = structure.dense(values).masked_fill(~keep, float("-inf")).softmax(-1)
    return full.flatten(2)[..., structure.place()]
""",
    "spmm": """\
def mine(structure, values, v):
    return structure.dense(values) @ v
""",
    "gat": """\
def mine(x, left, right, structure):
    x = x.transpose(0, 1)
    own, other = (x * left[:, None]).sum(-1), (x * right[:, None]).sum(-1)
    keep = structure.dense(torch.ones(structure.entries, dtype=torch.bool, device=x.device))
    scores = torch.nn.functional.leaky_relu(own[:, :, None] + other[:, None], 0.2)
    weights = scores.masked_fill(~keep, float("-inf")).softmax(-1).nan_to_num()  # no edge: zeros
    return (weights @ x).transpose(0, 1)
""",
}


def has(op: str) -> bool:
    """Whether there is an example of the operator."""
    return op in _BODIES


def signature(op: str) -> str:
    """How a function of the operator is called: "mine(a, b)"."""
    return _BODIES[op].partition(":\n")[0].removeprefix("def ")


def called(op: str) -> str:
    """ "called as `mine(x, weight, bias, eps)`, where eps may be left out": a setting at the end that is no
    tensor."""
    text = signature(op)
    return f"called as `{text}`" + ", where eps may be left out" * text.endswith(", eps)")


def write(op: str, title: str) -> str:
    """Put the example into the user's data folder, unless the file is there already; path:function. OSError
    where it cannot be written."""
    file = folder() / f"my_{op}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(file, "x") as new:
            new.write(_HEAD.format(title=title.lower()) + _BODIES[op])
    except FileExistsError:
        pass  # an edited file stays
    return f"{file}:{NAME}"


def folder() -> Path:
    """Where examples are written: kernels/ of the user's data folder."""
    return paths.user_folder("XDG_DATA_HOME", ".local/share") / "kernels"

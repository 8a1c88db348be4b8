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
}


def has(op: str) -> bool:
    """Whether there is an example of the operator."""
    return op in _BODIES


def signature(op: str) -> str:
    """How a function of the operator is called: "mine(a, b)"."""
    return _BODIES[op].partition(":\n")[0].removeprefix("def ")


def write(op: str, title: str) -> str:
    """Put the example into the user's data folder, unless the file is there already; path:function. OSError
    where it cannot be written."""
    file = folder() / f"my_{op}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(file, "x") as new:
            new.write(_HEAD.format(title=title.lower()) + _BODIES[op])
    except FileExistsError:
        pass  # what somebody has changed stays
    return f"{file}:{NAME}"


def folder() -> Path:
    """Where examples are written: kernels/ of the user's data folder."""
    return paths.user_folder("XDG_DATA_HOME", ".local/share") / "kernels"

"""What the peers of attention, packed attention and decoding share: SDPA on a chosen backend, FlexAttention
compiled, and their refusals in one sentence."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

from fusescope.core.errors import Unsupported

# Every case is a graph of its own; beyond PyTorch's default of 8 flex would silently run unfused.
_RECOMPILES = 4096


def backend_of(q, k, v, mask=None, causal: bool = False, gqa: bool = False) -> str:
    """The backend that SDPA takes for these arguments: flash_attention, efficient_attention, cudnn_attention,
    math …"""
    number = torch._fused_sdp_choice(q, k, v, mask, 0.0, causal, enable_gqa=gqa)
    known = {int(backend): name.lower() for name, backend in SDPBackend.__members__.items()}
    return known.get(number, str(number))


def on_backend(name: str | None, call: Callable, chosen: Callable[[], str], *tensors) -> tuple[Callable, str]:
    """(run, backend): call() by the SDPA backend of this name, or by the one that PyTorch chooses (None).

    chosen() says which backend PyTorch would take. Raises Unsupported with PyTorch's reasons where it is
    another one, or where the backend would fault on an address of q, k and v. Entering a backend's context
    costs some microseconds of CPU time per call; name None does not have it.
    """
    if name is None:
        backend = chosen()
        _refuse_odd_addresses(backend, *tensors)
        return call, backend
    wanted = getattr(SDPBackend, name)
    with warnings.catch_warnings(record=True) as said, sdpa_kernel(wanted):
        warnings.simplefilter("always")
        try:
            backend = chosen()
        except RuntimeError as error:
            raise Unsupported(_reason(name, said, error)) from None
    if backend != name.lower():
        raise Unsupported(_reason(name, said, f"PyTorch would take {backend}"))
    _refuse_odd_addresses(backend, *tensors)

    def run():
        with sdpa_kernel(wanted):
            return call()

    return run, backend


def named(run: Callable, backend: str) -> Callable:
    """run with its backend noted; a function of its own, so that the note can be set."""

    def noted():
        return run()

    noted.backend = backend
    return noted


def tried(name: str, run: Callable) -> Callable:
    """run, called once, in the caller's gradient mode, because another one later would compile again; what
    PyTorch or a compiler refuses is Unsupported with its first line."""
    try:
        run()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # the classes that PyTorch and its compilers raise are many and not public
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise Unsupported(
            f"{name} does not take this: {lines[0] if lines else type(error).__name__}"
        ) from error
    return run


def compiled_flex() -> Callable:
    """FlexAttention through torch.compile, for any number of cases."""
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, _RECOMPILES)
    config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, _RECOMPILES)
    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


def eager(q, k, v, additive: Callable, modify: Callable | None = None):
    """softmax(q kᵀ / √D + additive()) v, every score in memory; additive() may be None; modify(scores): what
    scaled scores become before."""
    group, scale = q.shape[1] // k.shape[1], q.shape[3] ** -0.5

    def run():
        keys, values = (
            (k, v) if group == 1 else (k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))
        )
        scores, mask = (q @ keys.transpose(2, 3)) * scale, additive()
        scores = scores if modify is None else modify(scores)
        return torch.softmax(scores if mask is None else scores + mask, -1).to(values.dtype) @ values

    return run


def dead_scores(dead, dtype):
    """The additive mask, 0 or −inf, of a bool tensor of what is not kept."""
    return torch.zeros(dead.shape, dtype=dtype, device=dead.device).masked_fill_(dead, float("-inf"))


def later_keys(length: int, dtype, device):
    """The additive mask (length, length) of causal attention."""
    return dead_scores(torch.ones(length, length, dtype=torch.bool, device=device).triu_(1), dtype)


def _refuse_odd_addresses(backend: str, *tensors) -> None:
    """PyTorch hands any address to its fused CUDA kernels, and they fault on one that is not a multiple of 16
    bytes (seen with torch 2.11 on an H200: "misaligned address", which ends the process's CUDA context)."""
    if backend != "math" and any(t.is_cuda and t.data_ptr() % 16 for t in tensors):
        raise Unsupported(
            f"{backend} does not take this: it faults on an address that is not a multiple of 16 bytes"
        )


def _reason(name: str, said, error) -> str:
    texts = [str(w.message).split(" (Triggered")[0].strip() for w in said]
    why = [
        t for t in texts if not t.endswith("because:") and "runtime disabled" not in t and "has been" not in t
    ]
    return f"{name.lower()} does not take this: {'; '.join(dict.fromkeys(why)) or str(error).splitlines()[0]}"

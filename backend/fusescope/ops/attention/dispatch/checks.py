"""What attention, packed attention and decoding refuse, each rule in one sentence with what was given and
what is supported."""

from __future__ import annotations

from fusescope.core.errors import Unsupported
from fusescope.ops.attention.plan.plan import Plan


def are_tensors(torch, **named) -> None:
    for name, t in named.items():
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} is a tensor, not {type(t).__name__}")
        if t.layout != torch.strided or t.is_nested:
            kind = "nested" if t.is_nested else str(t.layout).removeprefix("torch.")
            raise Unsupported(f"{name} is a {kind} tensor; dense (strided) ones are supported")


def one_dtype(torch, **named) -> None:
    """One dtype among the three of them, and a supported one."""
    dtypes = [t.dtype for t in named.values()]
    if len(set(dtypes)) > 1:
        raise TypeError(f"{_list(named)} have one dtype, not {_list(dtypes)}")
    if dtypes[0] not in (torch.float32, torch.float16, torch.bfloat16):
        raise Unsupported(f"dtype {dtypes[0]}; float32, float16 and bfloat16 are supported")


def one_device(what: str, *tensors, last: str = " and ") -> None:
    devices = [t.device for t in tensors]
    if len(set(devices)) > 1:
        raise ValueError(f"{what} lie on one device, not on {_list(devices, last)}")
    if devices[0].type not in ("cpu", "cuda"):
        raise Unsupported(f"device {devices[0]}; cpu and cuda are supported")


def heads_and_head_size(heads: int, kv_heads: int, head_size: int) -> None:
    if heads % kv_heads:
        raise ValueError(
            f"the number of query heads is a multiple of that of KV heads; {heads} is not one of {kv_heads}"
        )
    if head_size % 8 or not 32 <= head_size <= 256:
        raise Unsupported(
            f"head size {head_size}; multiples of 8 from 32 to 256 are supported, because rows are "
            "read 8 elements at a time"
        )


def no_gradient(torch, function: str, *tensors, what: str = "an input") -> None:
    if any(_is_differentiated(torch, t) for t in tensors):
        raise Unsupported(
            f"{function} is forward only, but {what} requires a gradient; call it under torch.no_grad()"
        )
    if not torch.compiler.is_compiling() and any(_has_tangent(torch, t) for t in tensors):
        raise Unsupported(
            f"{function} has no derivative, but {what} has a tangent (torch.func.jvp, forward-mode "
            "differentiation); detach it before"
        )


def _is_differentiated(torch, t) -> bool:
    """Whether a gradient is taken by t. Inside torch.func.vmap only what is under the batch says so."""
    if not torch.is_grad_enabled():
        return False
    if not torch.compiler.is_compiling():
        functorch = torch._C._functorch
        while not t.requires_grad and functorch.is_functorch_wrapped_tensor(t):
            t = functorch.get_unwrapped(t)
    return t.requires_grad


def _has_tangent(torch, t) -> bool:
    """Whether forward-mode differentiation follows t. Of a tensor inside torch.func's transforms it is not
    known at which of several levels: it counts as one."""
    forward_ad = torch.autograd.forward_ad
    if forward_ad._current_level < 0:
        return False
    return torch._C._functorch.is_functorch_wrapped_tensor(t) or forward_ad.unpack_dual(t).tangent is not None


def dense(torch, q, k, v, function: str = "attention") -> None:
    """q, k and v of ``attention``, or of another function on the same."""
    are_tensors(torch, q=q, k=k, v=v)
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
        raise ValueError(
            f"q is (B, H, S_q, D) and k, v are (B, H_kv, S_k, D); their shapes are {shapes(q, k, v)}"
        )
    if k.shape[:3] == v.shape[:3] and k.shape[3] != v.shape[3]:
        raise Unsupported(
            f"a head size of v, {v.shape[3]}, that differs from that of k, {k.shape[3]}; one is supported"
        )
    if k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(
            "k and v have one shape (B, H_kv, S_k, D) with q's batch and head size; q, k, v are "
            f"{shapes(q, k, v)}"
        )
    one_dtype(torch, q=q, k=k, v=v)
    one_device("q, k and v", q, k, v)
    if 0 in q.shape or 0 in k.shape:
        raise ValueError(f"every size is at least 1; q, k, v are {shapes(q, k, v)}")
    heads_and_head_size(q.shape[1], k.shape[1], q.shape[3])
    no_gradient(torch, function, q, k, v)


def plan(given: Plan, q, k) -> None:
    if given.seq_q != q.shape[2] or given.seq_k != k.shape[2]:
        raise ValueError(
            f"the plan is for {given.seq_q} queries and {given.seq_k} keys; this call has "
            f"{q.shape[2]} and {k.shape[2]}"
        )
    if given.batch not in (1, q.shape[0]) or given.heads not in (1, q.shape[1]):
        raise ValueError(
            f"the plan holds masks for {given.batch} batch entries and {given.heads} heads; "
            f"this call has {q.shape[0]} and {q.shape[1]}"
        )
    if given.device != q.device:
        raise ValueError(f"the plan was prepared for {given.device}; q is on {q.device}")


def bias(torch, given, q, k) -> None:
    """The bias of ``attention``."""
    added(torch, given, q, (*q.shape[:3], k.shape[2]), "(B, H, S_q, S_k)", "attention")


def added(torch, given, q, full, sizes: str, function: str) -> None:
    """A bias that a function adds to scores of the shape ``full``, whose sizes it calls ``sizes``."""
    if not isinstance(given, torch.Tensor):
        raise TypeError(f"bias is a tensor added to the scores, not {type(given).__name__}")
    if given.dtype not in (q.dtype, torch.float32):
        hint = "; a bool mask goes to mask=" if given.dtype == torch.bool else ""
        raise TypeError(f"bias is of q's dtype {q.dtype} or torch.float32, not {given.dtype}{hint}")
    if given.device != q.device:
        raise ValueError(f"bias is on q's device {q.device}, not on {given.device}")
    broadcastable("bias", given, full, sizes)
    no_gradient(torch, function, given, what="bias")


def broadcastable(what: str, t, full, sizes: str = "(B, H, S_q, S_k)") -> None:
    if t.dim() > 4 or any(have not in (1, want) for have, want in zip(reversed(t.shape), reversed(full))):
        raise ValueError(f"{what} is broadcastable to {sizes} = {tuple(full)}; its shape is {tuple(t.shape)}")


def are_read(torch, check, numbers) -> bool:
    """Whether the values of lengths or offsets are checked: on request, and where reading them waits for
    nothing. Raises where ``check`` is no such thing, or asks for values that are not there yet."""
    if check not in (None, True, False):
        raise TypeError(f"check is True, False or None (on a CPU), not {check!r}")
    traced = torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() or numbers.is_meta
    if check and (traced or (numbers.is_cuda and torch.cuda.is_current_stream_capturing())):
        raise Unsupported(
            "check=True reads values on the host, which torch.compile and CUDA graphs do not allow; "
            "check them before"
        )
    return not traced and (numbers.is_cpu if check is None else check)


def rise(offsets, total: int) -> bool:
    """Whether offsets of packed rows rise from 0 to at most ``total``."""
    values = offsets.tolist()
    return values[0] == 0 and values[-1] <= total and values == sorted(values)


def offsets(name: str, given, total: int) -> None:
    if rise(given, total):
        return
    values = given.tolist()
    at = next((i for i in range(1, len(values)) if values[i] < values[i - 1]), None)
    if values[0] != 0:
        what = f"{name}[0] is {values[0]}"
    elif at is not None:
        what = f"{name}[{at}] = {values[at]} follows {values[at - 1]}"
    else:
        what = f"{name}[{len(values) - 1}] is {values[-1]}"
    raise ValueError(f"{name} rises from 0 to at most the {total} packed rows; {what}")


def within(lengths, most: int) -> bool:
    """Whether every length lies in 0 … ``most``."""
    values = lengths.tolist()
    return min(values) >= 0 and max(values) <= most


def cache_lengths(given, most: int) -> None:
    if not within(given, most):
        at, value = next((i, n) for i, n in enumerate(given.tolist()) if not 0 <= n <= most)
        raise ValueError(f"lengths lie in 0 … {most}, the keys of the cache; lengths[{at}] is {value}")


def scale(given) -> None:
    if given is None:
        return
    try:
        if isinstance(given, (str, bytes, bytearray, bool)):
            raise TypeError  # float() takes these
        float(given)
    except (TypeError, ValueError):
        raise TypeError(f"scale is a number or None, not {given!r}") from None


def is_window(given) -> bool:
    """Whether it is (left, right) of packed attention."""
    return (
        type(given) is tuple
        and len(given) == 2
        and type(given[0]) is type(given[1]) is int
        and -1 <= given[0] < 1 << 31
        and -1 <= given[1] < 1 << 31
    )


def window(given) -> None:
    if given is not None and not is_window(given):
        raise ValueError(
            "window is None or (left, right), numbers of keys from 0 to 2^31 - 1, or -1 for no limit; not "
            f"{given!r}"
        )


def softcap(given) -> None:
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if given is not None and not (number and 0 < given < float("inf")):
        raise ValueError(f"softcap is a finite number above 0, or None, not {given!r}")


def one_of_softcap_and_score(softcap) -> None:
    if softcap is not None:
        raise ValueError("softcap and score exclude each other: write c * tanh(score / c) in the expression")


def sinks(torch, given, q) -> None:
    if given is None:
        return
    are_tensors(torch, sinks=given)
    _one_a_head("sinks", given, q, given.dtype.is_floating_point, "floating-point scores")
    no_gradient(torch, "attention", given, what="sinks")


def slopes(torch, given, q) -> None:
    """ALiBi's."""
    if given is None:
        return
    are_tensors(torch, alibi_slopes=given)
    _one_a_head("alibi_slopes", given, q, given.dtype == torch.float32, "float32")
    no_gradient(torch, "attention_decode", given, what="alibi_slopes")


def _one_a_head(name: str, given, q, right_dtype: bool, kind: str) -> None:
    if tuple(given.shape) != (q.shape[1],) or not right_dtype:
        raise ValueError(
            f"{name} are {kind}, one of each of the {q.shape[1]} query heads; these are "
            f"{given.dtype} of shape {tuple(given.shape)}"
        )
    if given.device != q.device:
        raise ValueError(f"{name} are on q's device {q.device}, not on {given.device}")


def fp8_cache(torch, q, k, v, **scales) -> None:
    """q and a cache of e4m3, (…, H_kv, …, D), with the scales of its KV heads by name."""
    if k.dtype != torch.float8_e4m3fn or v.dtype != torch.float8_e4m3fn:
        raise TypeError(
            f"{_list(scales)} belong to a cache of torch.float8_e4m3fn; k_cache and v_cache are {k.dtype} "
            f"and {v.dtype}"
        )
    one_dtype(torch, q=q)
    for name, given in scales.items():
        if given is None:
            raise ValueError(f"a cache of torch.float8_e4m3fn needs {_list(scales)}; {name} is None")
        are_tensors(torch, **{name: given})
        if given.dtype != torch.float32 or tuple(given.shape) != (k.shape[1],) or not given.is_contiguous():
            raise ValueError(
                f"{name} is contiguous float32, one of each of the {k.shape[1]} KV heads; this one is "
                f"{given.dtype} of shape {tuple(given.shape)}"
            )
        if given.device != q.device:
            raise ValueError(f"{name} is on q's device {q.device}, not on {given.device}")


def positive(**scales) -> None:
    for name, given in scales.items():
        if given is not None and len(wrong := given[~((given > 0) & given.isfinite())]):
            raise ValueError(f"{name} holds positive finite numbers, not {wrong[0].item():g}")


def implementation(given) -> None:
    if not isinstance(given, str):
        raise TypeError(f'impl is the name of a kernel or "auto", not {given!r}')


def shapes(*tensors) -> str:
    return ", ".join(str(tuple(t.shape)) for t in tensors)


def _list(things, last: str = " and ") -> str:
    *first, end = map(str, things)
    return f"{', '.join(first)}{last}{end}"

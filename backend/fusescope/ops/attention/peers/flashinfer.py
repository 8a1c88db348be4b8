"""Peers of decoding from FlashInfer, where it is installed: its planned kernels on CUDA cores and on tensor
cores, and its XQA kernel. Each reads the cache where it lies, as pages; what depends on the lengths is
planned once, outside a call."""

from __future__ import annotations

import importlib
import math
import time

import torch

from fusescope.core.errors import Unsupported
from fusescope.ops.attention.peers import vendor
from fusescope.ops.attention.peers.decode import finished

# keys: with 64 its kernels are up to 15 % faster than with 16; one page of S_max keys would be slow, since a
# sequence is split between pages only
_PAGE = 64
_WORKSPACE = 128 << 20  # bytes, the size that its documentation recommends
_COLUMNS = (64, 128, 256)
_GROUPS = (1, 2, 3, 4, 6, 8, 16)  # query heads per KV head that its kernel on CUDA cores is compiled for
_XQA_PAGES = (16, 32, 64, 128)
_XQA_CAPABILITIES = (9, 10, 12)


def planned(tensor_cores: bool, inputs):
    """BatchDecodeWithPagedKVCacheWrapper on CUDA or on tensor cores, planned for these very lengths
    (use_cuda_graph=False): the grid has no blocks for other lengths, and a CUDA graph of run() holds for as
    long as the lengths do.

    Its documentation recommends tensor cores for many query heads per KV head; here both are peers.
    ``setup_ms`` is plan() once compiled, ``setup_bytes`` the page table and the workspace. Raises Unsupported
    for what it or this peer does not take, and where the package is missing.
    """
    name = f"FlashInfer on {'tensor' if tensor_cores else 'CUDA'} cores"
    views, table = _taken(name, inputs)
    q, (k, _) = views()
    lengths, group = inputs["lengths"], q.shape[1] // k.shape[1]
    if not tensor_cores and group not in _GROUPS:
        raise _refused(name, f"{group} query heads per KV head; it takes {_listed(_GROUPS)}")
    package = _package("flashinfer")
    lists, workspace = page_lists(table, lengths, k.shape[2]), _workspace(q.device)
    wrapper = package.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND", use_tensor_cores=tensor_cores)

    def plan():
        wrapper.plan(
            *lists,
            q.shape[1],
            k.shape[1],
            q.shape[2],
            k.shape[2],
            window_left=inputs.get("window", 0) - 1,
            logits_soft_cap=inputs.get("softcap"),
            q_data_type=q.dtype,
            kv_data_type=k.dtype,
            sm_scale=q.shape[2] ** -0.5,
        )

    empty = (lengths == 0)[:, None, None, None]
    empty = empty if bool(empty.any()) else None
    run = finished(lambda: wrapper.run(*views()), inputs, empty)
    compile_ms = _timed(lambda: (plan(), run()), name, q.device)  # compiles, or loads what is compiled
    run.setup_ms = _timed(plan, name, q.device)
    run.compile_ms = max(compile_ms - run.setup_ms, 0.0)
    run.setup_bytes = _bytes(workspace, *lists)
    cores = f"tensor cores ({wrapper.resolved_backend})" if tensor_cores else "CUDA cores"
    run.backend = f"flashinfer {package.__version__}, {cores}"
    return run


def xqa(inputs):
    """xqa_batch_decode_with_kv_cache: one kernel on tensor cores, which reads the lengths on the device and
    needs no plan. ``setup_bytes`` is the page table and the workspace. Raises Unsupported as planned does,
    and for a soft-cap, sequences without a key and pages of other than 16, 32, 64 or 128 keys."""
    name = "FlashInfer's XQA"
    if "softcap" in inputs:
        raise _refused(name, "a soft-cap")
    views, table = _taken(name, inputs)
    q, (k, _) = views()
    lengths, page = inputs["lengths"], k.shape[2]
    if page not in _XQA_PAGES:
        raise _refused(
            name, f"pages of {page} keys; it takes {_listed(_XQA_PAGES)}, or an S_max that 16 divides"
        )
    if not q.is_contiguous():
        raise _refused(name, "queries that are not contiguous")
    if not int(lengths.min()):
        raise _refused(name, "a sequence without a key")
    if q.is_cuda and torch.cuda.get_device_capability(q.device)[0] not in _XQA_CAPABILITIES:
        device = torch.cuda.get_device_name(q.device)
        raise _refused(name, f"{device}; it is for compute capability {_listed(_XQA_CAPABILITIES)}")
    package, attend = _package("flashinfer"), _package("flashinfer.decode").xqa_batch_decode_with_kv_cache
    workspace = _workspace(q.device)
    options = dict(
        bmm1_scale=q.shape[2] ** -0.5,
        bmm2_scale=1.0,
        window_left=inputs.get("window", 0) - 1,
        kv_layout="HND",
    )

    def call():
        return attend(*views(), workspace, table, lengths, table.shape[1] * page, **options)

    run = finished(call, inputs, None)
    run.compile_ms = _timed(run, name, q.device)
    run.setup_bytes = _bytes(workspace, table)
    run.backend = f"flashinfer {package.__version__}, XQA"
    return run


def _taken(name: str, inputs):
    """A function that gives views, q as (B, H, D) and (k, v) as (pages, H_kv, page, D), in every call because
    inputs move between calls; and the page table, int32 (B, pages per sequence). Unsupported for what no peer
    here takes."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    vendor.half_precision(name, q, k, v)
    for option, what in (
        ("k_scale", "an fp8 cache with a scale per KV head"),
        ("alibi_slopes", "ALiBi by given slopes"),
        ("bias", "a bias"),
        ("sinks", "attention sinks"),
    ):
        if option in inputs:
            raise _refused(name, what)
    if q.shape[2] > 1:
        raise _refused(name, f"{q.shape[2]} query tokens per sequence; this peer takes one")
    if q.shape[3] not in _COLUMNS:
        raise _refused(name, f"heads of {q.shape[3]} columns; it takes {_listed(_COLUMNS)}")
    if k.stride() != v.stride():
        raise _refused(name, "keys and values with different strides")
    table = inputs.get("block_table")
    if table is None:
        shape, strides, table = pages_of(name, k)
    elif bool(((table < 0) | (table >= k.shape[0])).any()):
        raise _refused(name, "a block_table with pages that are not in the cache")
    else:
        shape, strides = k.shape, k.stride()
    return lambda: (q[:, :, 0], tuple(t.as_strided(shape, strides) for t in (k, v))), table.contiguous()


def pages_of(name: str, k):
    """The shape and strides that show a padded cache (B, H_kv, S_max, D) as pages (pages, H_kv, page, D)
    without a copy, and the page table.

    A page is 64 keys, or the largest power of two below that divides S_max. Page n begins n times one head's
    page behind the start and reaches the other heads by their stride; numbers of pages that would begin in
    another head are not in the table.
    """
    batch, heads, size, columns = k.shape
    page = math.gcd(size, _PAGE)
    step, apart = page * k.stride(2), k.stride(0) if batch > 1 else 0
    if apart % step:
        raise _refused(name, f"sequences whose distance in memory is no multiple of {page} keys")
    apart //= step
    shape = (apart * (batch - 1) + size // page, heads, page, columns)
    strides = (step, k.stride(1), k.stride(2), 1)
    places = torch.arange(batch, device=k.device)[:, None] * apart
    table = places + torch.arange(size // page, device=k.device)
    return shape, strides, table.int()


def page_lists(table, lengths, page: int):
    """What plan() takes: where each sequence's pages begin, int32 (B + 1) on the host; the pages that hold a
    key, int32 on the table's device; and the keys in the last page of each, int32 (B,) on the host."""
    lengths = lengths.cpu()
    counts = (lengths + page - 1) // page
    begin = torch.zeros(len(lengths) + 1, dtype=torch.int32)
    begin[1:] = counts.cumsum(0)
    used = torch.arange(table.shape[1]) < counts[:, None]
    last = torch.where(counts > 0, lengths - (counts - 1) * page, 0)
    return begin, table[used.to(table.device)], last.int()


def _package(name: str):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unsupported(f"FlashInfer is not installed (pip install flashinfer-python): {error}") from None


def _workspace(device):
    return torch.zeros(_WORKSPACE, dtype=torch.uint8, device=device)  # zeros are required at first use


def _timed(call, name: str, device) -> float:
    """Milliseconds of a call, which may compile, with what the package refuses as Unsupported."""
    begin = time.perf_counter()
    with vendor.refusals(name), torch.no_grad():
        call()
        torch.cuda.synchronize(device)
    return (time.perf_counter() - begin) * 1e3


def _bytes(*tensors) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _refused(name: str, what: str) -> Unsupported:
    return Unsupported(f"{name} does not take this: {what}")


def _listed(values) -> str:
    return ", ".join(map(str, values[:-1])) + f" and {values[-1]}"

"""Settings of the whole process that an implementation may change for all that run after it: compared behind
each of its turns, put back, and said in its record.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

import torch

from fusescope.ops.common.peers import sum_in_fp32

_VARIABLES = ("CUBLAS_", "CUDA_", "CUDNN_", "GOMP_", "KMP_", "MKL_", "NVIDIA_", "OMP_", "PYTORCH_", "TORCH_")
"""Environment variables that libraries of kernels read begin so."""
_OWN_VARIABLES = ("CUDA_MODULE_LOADING",)  # torch sets these when CUDA begins


_UNREADABLE = "unreadable"
_PASSES = 2


class Setting(NamedTuple):
    """``get`` gives None where it is not known."""

    name: str
    get: Callable[[], Any]
    set: Callable[[Any], None]


def _attribute(name: str, owner: Any, attribute: str) -> Setting:
    return Setting(name, partial(getattr, owner, attribute), partial(setattr, owner, attribute))


def _variables() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k.startswith(_VARIABLES) and k not in _OWN_VARIABLES}


def _set_variables(wanted: dict[str, str]) -> None:
    for name in _variables().keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)


def _default_device() -> str:
    """ "" where none was set: setting "cpu" would route every call of torch through Python."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return str(context.device) if context else ""


def _on_cuda(get: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: get() if torch.cuda.is_initialized() else None


_cuda, _cudnn, _matmul = torch.backends.cuda, torch.backends.cudnn, torch.backends.cuda.matmul
_cores = hasattr(os, "sched_getaffinity")

SETTINGS = (
    Setting("threads of torch", torch.get_num_threads, torch.set_num_threads),
    Setting(
        "float32 matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    ),
    _attribute("TF32 in cuBLAS", _matmul, "allow_tf32"),
    _attribute("TF32 in cuDNN", _cudnn, "allow_tf32"),
    _attribute("precision of float32", torch.backends, "fp32_precision"),
    _attribute("precision of float32 in cuBLAS", _matmul, "fp32_precision"),
    _attribute("precision of float32 in oneDNN", torch.backends.mkldnn.matmul, "fp32_precision"),
    _attribute("precision of float32 in cuDNN's convolutions", _cudnn.conv, "fp32_precision"),
    _attribute("precision of float32 in cuDNN's RNNs", _cudnn.rnn, "fp32_precision"),
    _attribute("fp16 sums in cuBLAS", _matmul, "allow_fp16_reduced_precision_reduction"),
    _attribute("bf16 sums in cuBLAS", _matmul, "allow_bf16_reduced_precision_reduction"),
    Setting("BLAS library", _cuda.preferred_blas_library, _cuda.preferred_blas_library),
    _attribute("cuDNN", _cudnn, "enabled"),
    _attribute("cuDNN's benchmark", _cudnn, "benchmark"),
    _attribute("cuDNN's deterministic", _cudnn, "deterministic"),
    Setting("SDPA's flash backend", _cuda.flash_sdp_enabled, _cuda.enable_flash_sdp),
    Setting("SDPA's mem_efficient backend", _cuda.mem_efficient_sdp_enabled, _cuda.enable_mem_efficient_sdp),
    Setting("SDPA's math backend", _cuda.math_sdp_enabled, _cuda.enable_math_sdp),
    Setting("SDPA's cuDNN backend", _cuda.cudnn_sdp_enabled, _cuda.enable_cudnn_sdp),
    Setting("SDPA's order of backends", torch._C._get_sdp_priority_order, torch._C._set_sdp_priority_order),
    Setting(
        "deterministic algorithms", torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode
    ),
    _attribute("filling of new memory", torch.utils.deterministic, "fill_uninitialized_memory"),
    Setting("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting("default device", _default_device, lambda name: torch.set_default_device(name or None)),
    Setting("gradients", torch.is_grad_enabled, torch._C._set_grad_enabled),
    *(
        Setting(
            f"autocast on {kind}",
            partial(torch.is_autocast_enabled, kind),
            partial(torch.set_autocast_enabled, kind),
        )
        for kind in ("cpu", "cuda")
    ),
    *(
        Setting(
            f"dtype of autocast on {kind}",
            partial(torch.get_autocast_dtype, kind),
            partial(torch.set_autocast_dtype, kind),
        )
        for kind in ("cpu", "cuda")
    ),
    Setting("random seed", torch.initial_seed, torch.manual_seed),
    Setting("CUDA device", _on_cuda(torch.cuda.current_device), torch.cuda.set_device),
    Setting("CUDA stream", _on_cuda(torch.cuda.current_stream), torch.cuda.set_stream),
    Setting("garbage collection", gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    Setting("switch interval", sys.getswitchinterval, sys.setswitchinterval),
    # in a tuple, because None is a value of these
    Setting("tracing of Python", lambda: (sys.gettrace(),), lambda hook: sys.settrace(*hook)),
    Setting("profiling of Python", lambda: (sys.getprofile(),), lambda hook: sys.setprofile(*hook)),
    Setting(
        "CPU affinity",
        partial(os.sched_getaffinity, 0) if _cores else lambda: None,
        lambda cores: os.sched_setaffinity(0, cores),
    ),
    Setting("environment variables", _variables, _set_variables),
    Setting("working directory", os.getcwd, os.chdir),
)


@cache
def _decided(on_cuda: bool) -> None:
    """Settings that all implementations have in common, and what torch decides at the first use of a GPU:
    done before an implementation runs, so that it is nobody's change and is not put back. (On Hopper torch
    places cuDNN first among SDPA's backends when it first chooses one, once in a process.)"""
    sum_in_fp32()
    if on_cuda:
        q = torch.empty(1, 1, 8, 64, dtype=torch.float16, device="cuda")
        torch._fused_sdp_choice(q, q, q)


@contextmanager
def kept(changed: MutableMapping[str, str]) -> Iterator[None]:
    """What is changed inside is put back behind it; ``changed`` gets its names with "before → after"."""
    _decided(torch.cuda.is_initialized())
    before = _read()
    try:
        yield
    finally:
        found = _different(before)
        changed |= {setting.name: _difference(was, now) for setting, was, now in found}
        for _ in range(_PASSES if found else 0):  # some of torch's settings change others with them
            for setting, was, _now in _different(before):
                setting.set(was)


def _read() -> list[Any]:
    return [_value(setting) for setting in SETTINGS]


def _value(setting: Setting) -> Any:
    """_UNREADABLE where torch refuses it, since its older and newer names of one setting contradict each
    other, or does not have it; and of a working directory that is gone."""
    try:
        return setting.get()
    except (RuntimeError, AttributeError, OSError):
        return _UNREADABLE


def _different(before: list[Any]) -> list[tuple[Setting, Any, Any]]:
    """(setting, before, now) of those that differ from what they were known to be."""
    several = zip(SETTINGS, before, _read())
    return [(s, was, now) for s, was, now in several if was not in (None, _UNREADABLE) and now != was]


def sentence(changed: MutableMapping[str, str]) -> str | None:
    """What is said of an implementation that changed settings; None of one that did not."""
    if not changed:
        return None
    listed = "; ".join(f"{name} {change}" for name, change in changed.items())
    return f"changed settings of the whole process, put back after each of its turns: {listed}"


def _difference(was: Any, now: Any) -> str:
    """ "2 → 1"; of mappings only what differs."""
    if isinstance(was, dict):
        names = sorted(k for k in was.keys() | now.keys() if was.get(k) != now.get(k))
        return ", ".join(f"{k}: {was.get(k, 'unset')} → {now.get(k, 'unset')}" for k in names)
    return f"{_text(was)} → {_text(now)}"


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join("none" if one is None else getattr(one, "__name__", str(one)) for one in value)
    if isinstance(value, set):
        return ",".join(map(str, sorted(value)))
    return str(value).removeprefix("torch.") or "none"

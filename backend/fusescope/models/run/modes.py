"""Making an execution mode of a model: everything that is not part of a call (masks, BlockMasks, compilation,
capture) is done here.

    run = make("sdpa-graph", model, inputs)      # run() -> Tensor, as build.call gives it

``run.graph``: the call replays a CUDA graph of its own, and ``run.replay`` is that replay alone. What such a
run returns is overwritten by its next call. Peers are called so that Hugging Face builds no mask of its own:
one that is needed is prepared here, additive, in the model's dtype. The trap is sdpa-graph-trap, which leaves
the mask to Hugging Face as a user would.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fusescope.core.errors import Unsupported
from fusescope.models import register
from fusescope.models.describe import modes as listing
from fusescope.models.describe.modes import Mode
from fusescope.models.hugging_face import flash, model_masks, peers
from fusescope.models.run import build, capture, fused_run, masking
from fusescope.models.run.build import Model
from fusescope.ops.attention.peers import vendor

_RECOMPILES = 4096  # beyond dynamo's default of 8 shapes, a sweep would silently go on in eager mode


def make(name: str, model: Model, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """A callable without arguments that runs one call of the mode on these inputs.

    Raises ValueError for a mode that does not exist, Unsupported with the reason for one that this model,
    case or device does not have, and whatever compiling and capturing raise.
    """
    if reason := listing.mode(model.name, name, model.device).reason:
        raise Unsupported(reason)
    mode = listing.MODES[name]
    if mode.attention is None:
        return fused_run.make(model, inputs, mode.quantised)
    if inputs["case"].get("phase") == "generate" and (mode.graph or mode.compile or name == "flex"):
        raise Unsupported(f"{name} runs one call of fixed lengths, and a generation is many: measure decode")
    call = forward(mode, model, inputs)
    if mode.compile:
        return call
    return capture.captured(call, model.device) if mode.graph else capture.plain(call)


def forward(mode: Mode, model: Model, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """One call of a Hugging Face module with the attention of the mode, as it is before a capture."""
    ours = mode.attention == register.NAME
    if mode.compile:
        return _compiled(mode, model.fresh(view(mode)), inputs)
    module = model.view(view(mode))
    if getattr(model.family, "OWN_MASKS", False) and mode.name != "sdpa-graph-trap":
        if mode.attention == "flex_attention":
            _raise_limits()
        call = functools.partial(build.call, module, inputs)
        return _jit_compiled(call) if mode.attention == listing.FLASH else call
    if mode.attention == listing.FLASH:
        return _jit_compiled(_within(masking.flash_mask_of(inputs), module, inputs))
    if ours:
        plan = masking.plan_of(inputs, model.device)
        if inputs["keep"] is not None and plan is None:  # T5: Hugging Face takes the two-dimensional mask
            return lambda: build.call(module, inputs)
        return _within(plan, module, inputs)
    if mode.name == "sdpa-graph-trap":
        return _trap(module, model, inputs)
    if mode.attention == "flex_attention":
        _raise_limits()
        return _within(masking.block_mask_of(inputs, model.device), module, inputs)
    return lambda: build.call(module, inputs)


def view(mode: Mode) -> str:
    """The attn_implementation of the module that the mode calls (see Model.view); Hugging Face knows it from
    now on."""
    (register.register_attention if mode.attention == register.NAME else peers.register_peers)()
    own = {"sdpa": peers.SDPA, "flex_attention": peers.FLEX, listing.FLASH: flash.NAME}
    return "sdpa" if mode.name == "sdpa-graph-trap" else own.get(mode.attention, mode.attention)


def _within(plan, module, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """A call with a prepared mask in the place of the additive one."""
    given = dict(inputs) | {"additive": None}

    def call():
        with model_masks.masked(plan):
            return build.call(module, given)

    return call


def _jit_compiled(call: Callable[[], Any]) -> Callable[[], Any]:
    """``call`` after the first one, in which FlashAttention-4 compiles its kernels, or refuses."""
    with vendor.refusals("FlashAttention-4"), torch.no_grad():
        call()
    return call


def _trap(module, model: Model, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """sdpa as Hugging Face makes its mask: from lengths (two-dimensional) where sequences are padded, else
    from nothing."""
    given = dict(inputs) | {"additive": None}
    own = "causal" if model.family.KIND == "decoder" else "full"
    if inputs["mask"].name != own:
        raise Unsupported(
            f"Hugging Face does not build the mask {inputs['mask']} for {model.name}; the trap is shown "
            f"with {own}"
        )
    if inputs["keep"] is not None:
        new = inputs["case"].get("phase") == "decode"  # one more, behind what is there
        places = torch.arange(inputs["case"]["seq"] + new, device=model.device)
        given["additive"] = (places < inputs["lengths_tensor"][:, None] + new).long()
    return lambda: build.call(module, given)


def _compiled(mode: Mode, module, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """The module through torch.compile, compiled before it is returned; a graph break is an error, not
    a fall-back to eager."""
    _raise_limits()
    cache = inputs.get("cache")
    for tensor in (*inputs.values(), *(cache.keys + cache.values if cache else ())):
        if isinstance(tensor, torch.Tensor):  # a replayed graph need not copy what stays where it is
            torch._dynamo.mark_static_address(tensor)
    own = None if mode.compile == "default" else mode.compile
    fast = torch.compile(build.call, fullgraph=True, dynamic=False, mode=own)

    def run():
        with torch.no_grad():
            if mode.graph:
                torch.compiler.cudagraph_mark_step_begin()
            return fast(module, inputs)

    skips = torch._dynamo.utils.counters["inductor"]
    before = skips["cudagraph_skips"]
    for _ in range(3 if mode.graph else 1):  # a graph is recorded at the second call, replayed from the third
        run()
    # where inductor made no graph, the call is captured like any other mode's
    run.graph = mode.graph and skips["cudagraph_skips"] == before
    return run


def _raise_limits() -> None:
    """One graph per case: no automatic dynamic shapes, which are slower, and no silent return to eager after
    eight of them."""
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, _RECOMPILES)
    config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, _RECOMPILES)
    config.automatic_dynamic_shapes = False

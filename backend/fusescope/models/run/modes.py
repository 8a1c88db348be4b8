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
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from fusescope.core.errors import Unsupported
from fusescope.models import register
from fusescope.models.describe import modes as listing
from fusescope.models.describe.modes import Mode
from fusescope.models.hugging_face import flash, model_masks, peers
from fusescope.models.run import build, capture, fused_run, generation, masking
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
    if inputs["case"].get("phase") == "generate":
        return _generation(mode, model, inputs)
    call = forward(mode, model, inputs)
    if mode.compile:
        return _compiled(mode, call, _tensors(inputs))
    return capture.captured(call, model.device) if mode.graph else capture.plain(call)


def forward(mode: Mode, model: Model, inputs: Mapping[str, Any], module: Any = None) -> Callable[[], Any]:
    """One call of a Hugging Face module with the attention of the mode, as it is before a capture or
    compilation. module: one of the mode's ``view``, None for the one that it calls."""
    module = module or _module(mode, model)
    if inputs["case"].get("phase") == "generate" and _is_fixed(mode):
        made, *calls = fixed(mode, model, inputs, module)
        return made.run(*made.calls(*calls), graph=False)
    return _call(mode, model, inputs, module)


def fixed(
    mode: Mode, model: Model, inputs: Mapping[str, Any], module: Any
) -> tuple[generation.FixedGeneration, Callable[[], Any], Callable[[], Any]]:
    """(a generation by two calls of fixed shapes, the call of the prompt, that of a token), before a capture
    or compilation."""
    own_masks = getattr(model.family, "OWN_MASKS", False)
    if mode.attention != listing.FLASH and (own_masks or mode.name == "sdpa-graph-trap"):
        masks = None
    else:
        masks = "additive" if mode.attention == "sdpa" else "sizes"
    made = generation.FixedGeneration(model, inputs, masks)
    return made, *(_call(mode, model, given, module) for given in (made.prompt, made.token))


def _is_fixed(mode: Mode) -> bool:
    """Whether a generation of it is by calls of fixed shapes: what is captured, or compiled by shapes."""
    return bool(mode.graph or mode.compile or mode.attention == "flex_attention")


def _generation(mode: Mode, model: Model, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """run() of a generation; run.marked(mark): the same, see generation.logits."""
    module = _module(mode, model)
    if not _is_fixed(mode):
        run = capture.plain(_call(mode, model, inputs, module))
        run.marked = functools.partial(generation.logits, module, inputs)
        return run
    made, *calls = fixed(mode, model, inputs, module)
    if mode.compile:  # the model alone: what moves on in place around it, PyTorch 2.11 does not compile
        calls = [_compiled(mode, call, made.tensors(), made.restart) for call in calls]
        return made.run(*made.calls(*calls), graph=all(call.graph for call in calls))
    steps = made.calls(*calls)
    if mode.graph:
        steps = [capture.captured(step, model.device, made.restart) for step in steps]
    return made.run(*steps, graph=mode.graph)


def _call(mode: Mode, model: Model, inputs: Mapping[str, Any], module: Any) -> Callable[[], Any]:
    """build.call of the module with the masks as the mode takes them."""

    def call():
        return build.call(module, inputs)

    if getattr(model.family, "OWN_MASKS", False) and mode.name != "sdpa-graph-trap":
        if mode.attention == "flex_attention":
            _raise_limits()
        if "sizes" in inputs:  # FlashAttention-4 over a cache that is not yet full
            return _jit_compiled(_within(inputs["sizes"], module, inputs))
        return _jit_compiled(call) if mode.attention == listing.FLASH else call
    if mode.attention == listing.FLASH:
        return _jit_compiled(_within(masking.flash_mask_of(inputs), module, inputs))
    if mode.attention == register.NAME:
        plan = masking.plan_of(inputs, model.device)
        if inputs["keep"] is not None and plan is None:  # T5: Hugging Face takes the two-dimensional mask
            return call
        return _within(plan, module, inputs)
    if mode.name == "sdpa-graph-trap":
        return _trap(module, model, inputs)
    if mode.attention == "flex_attention":
        _raise_limits()
        return _within(masking.block_mask_of(inputs, model.device), module, inputs)
    return call


def view(mode: Mode) -> str:
    """The attn_implementation of the module that the mode calls (see Model.view); Hugging Face knows it from
    now on."""
    (register.register_attention if mode.attention == register.NAME else peers.register_peers)()
    own = {"sdpa": peers.SDPA, "flex_attention": peers.FLEX, listing.FLASH: flash.NAME}
    return "sdpa" if mode.name == "sdpa-graph-trap" else own.get(mode.attention, mode.attention)


def _module(mode: Mode, model: Model):
    return model.fresh(view(mode)) if mode.compile else model.view(view(mode))


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


def _compiled(
    mode: Mode, call: Callable[[], Any], tensors: Iterable[Any], before: Callable[[], Any] = lambda: None
) -> Callable[[], Any]:
    """The call through torch.compile, compiled before it is returned; a graph break is an error, not a
    fall-back to eager. tensors: those that stay where they are; before: as capture.captured has it."""
    _raise_limits()
    for tensor in tensors:  # a replayed graph need not copy what stays where it is
        torch._dynamo.mark_static_address(tensor)
    own = None if mode.compile == "default" else mode.compile
    fast = torch.compile(call, fullgraph=True, dynamic=False, mode=own)

    def run():
        with torch.no_grad():
            if mode.graph:
                torch.compiler.cudagraph_mark_step_begin()
            return fast()

    skips = torch._dynamo.utils.counters["inductor"]
    skipped = skips["cudagraph_skips"]
    for _ in range(3 if mode.graph else 1):  # a graph is recorded at the second call, replayed from the third
        before()
        run()
    # where inductor made no graph, the call is captured like any other mode's
    run.graph = mode.graph and skips["cudagraph_skips"] == skipped
    return run


def _tensors(inputs: Mapping[str, Any]) -> list[Any]:
    cache = inputs.get("cache")
    found = (*inputs.values(), *(cache.keys + cache.values if cache else ()))
    return [t for t in found if isinstance(t, torch.Tensor)]


def _raise_limits() -> None:
    """One graph per case: no automatic dynamic shapes, which are slower, and no silent return to eager after
    eight of them."""
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, _RECOMPILES)
    config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, _RECOMPILES)
    config.automatic_dynamic_shapes = False

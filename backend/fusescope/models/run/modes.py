"""Making a way to run a model: everything that is not part of a call (masks, BlockMasks, compilation,
capture) is done here.

    run = make("sdpa-graph", model, inputs)      # run() -> Tensor, as build.call gives it

``run.graph``: the call replays a CUDA graph of its own, and ``run.replay`` is that replay alone. What such a
run returns is overwritten by its next call. Peers are called so that Hugging Face builds no mask of its own:
one that is needed is prepared here, additive, in the model's dtype. The trap is sdpa-graph-trap, which leaves
the mask to Hugging Face as a user would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fusescope.core.errors import Unsupported
from fusescope.models import register
from fusescope.models.describe import listing
from fusescope.models.describe.listing import Way
from fusescope.models.run import build, masking
from fusescope.models.run.build import Model

_RECOMPILES = (
    4096  # beyond dynamo's default of 8 shapes of one function, a sweep would silently go on in eager mode
)


def make(name: str, model: Model, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """A callable without arguments that runs one call of the way on these inputs.

    Raises ValueError for a way that does not exist, Unsupported with the reason for one that this model, case
    or device does not have, and whatever the first calls raise that compiling and capturing make.
    """
    found = listing.way(model.name, name, model.device)
    if found.reason:
        raise Unsupported(found.reason)
    way = listing.WAYS[name]
    if name == "fused":
        from fusescope.models.run import fused_run

        return fused_run.make(model, inputs)
    call = _forward(way, model, inputs)
    if way.compile:
        return call
    return captured(call, inputs, model.device) if way.graph else _plain(call)


def _forward(way: Way, model: Model, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """One call of a Hugging Face module with the attention of the way."""
    if way.attention == "fusescope":
        register.register_attention()
        plan, module = masking.plan_of(inputs, model.device), model.view("fusescope")
        if (
            inputs["keep"] is not None and plan is None
        ):  # T5: the two-dimensional mask goes through Hugging Face
            return lambda: build.call(module, inputs)
        given = dict(inputs) | {"additive": None}

        def ours():
            with register.masked(plan):
                return build.call(module, given)

        return ours
    register.register_peers()
    if way.attention == "eager":
        return lambda: build.call(model.view("eager"), inputs)
    if way.name == "sdpa-graph-trap":
        return _trap(model, inputs)
    if way.attention == "flex_attention":
        _raise_limits()
        blocks, module = masking.block_mask_of(inputs, model.device), model.view(register.FLEX)
        given = dict(inputs) | {"additive": None}

        def flex():
            with register.masked(blocks):
                return build.call(module, given)

        return flex
    if way.compile:
        return _compiled(way, model.fresh(register.SDPA), inputs)
    module = model.view(register.SDPA)
    return lambda: build.call(module, inputs)


def _trap(model: Model, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """sdpa as Hugging Face makes its mask: from lengths (two-dimensional) where sequences are padded, else
    from nothing."""
    import torch

    module, given = model.view("sdpa"), dict(inputs) | {"additive": None}
    own = "causal" if model.family.KIND == "decoder" else "full"
    if inputs["mask"].name != own:
        raise Unsupported(
            f"Hugging Face builds no mask {inputs['mask']} by itself for {model.name}; the trap is shown with {own}"
        )
    if inputs["keep"] is not None:
        new = inputs["case"].get("phase") == "decode"  # one more, behind what is there
        places = torch.arange(inputs["case"]["seq"] + new, device=model.device)
        given["additive"] = (places < inputs["lengths_tensor"][:, None] + new).long()
    return lambda: build.call(module, given)


def _compiled(way: Way, module, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """The module through torch.compile, compiled before it is returned; a break of the graph is an error, not
    a way back to eager."""
    import torch

    _raise_limits()
    cache = inputs.get("cache")
    for tensor in (*inputs.values(), *(cache.keys + cache.values if cache else ())):
        if isinstance(
            tensor, torch.Tensor
        ):  # they stay where they are: a replayed graph need not copy them first
            torch._dynamo.mark_static_address(tensor)
    mode = None if way.compile == "default" else way.compile
    fast = torch.compile(build.call, fullgraph=True, dynamic=False, mode=mode)

    def run():
        with torch.no_grad():
            if way.graph:
                torch.compiler.cudagraph_mark_step_begin()
            return fast(module, inputs)

    skips = torch._dynamo.utils.counters["inductor"]
    before = skips["cudagraph_skips"]
    for _ in range(
        3 if way.graph else 1
    ):  # graphs are recorded at the second call and first replayed at the third
        run()
    run.graph = (
        way.graph and skips["cudagraph_skips"] == before
    )  # where inductor made none, it is captured like any other way
    return run


def _raise_limits() -> None:
    """One graph a case: no automatic dynamic shapes, which are slower, and no silent return to eager after
    eight of them."""
    import torch

    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, _RECOMPILES)
    config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, _RECOMPILES)
    config.automatic_dynamic_shapes = False


def _plain(call: Callable[[], Any]) -> Callable[[], Any]:
    import torch

    def run():
        with torch.no_grad():
            return call()

    run.graph = False
    return run


_WARM_UP = 3  # calls before a capture, on the capturing stream: workspaces, plans, lazy loading


def captured(call: Callable[[], Any], inputs: Mapping[str, Any], device: str) -> Callable[[], Any]:
    """``call`` in a CUDA graph on the inputs' own tensors: who writes new values into them gets new results.

    ``run.graph_bytes``: what the capture took of the graph's memory pool at most. Raises Unsupported with the
    first line of the reason where it cannot be captured.
    """
    import torch

    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(device)
    with torch.no_grad(), torch.cuda.device(device):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                call()
        torch.cuda.synchronize()
        # cuBLAS then takes its workspace from the graph's own pool. One from the common pool could be freed
        # while the graph lives (torch.compile's graphs free them all), and replays would write into whatever
        # lies there next.
        torch._C._cuda_clearCublasWorkspaces()
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        try:
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                out = call()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            line = next((text for text in str(error).splitlines() if text.strip()), type(error).__name__)
            raise Unsupported(f"it cannot be captured in a CUDA graph: {line}") from error
        finally:
            torch._C._cuda_clearCublasWorkspaces()  # nobody else is to use the pool's
        size = torch.cuda.max_memory_allocated(device) - before

    def run():
        graph.replay()
        return out

    run.graph, run.replay, run.graph_bytes = True, graph.replay, size
    run.call = call  # the graph reads tensors that only this holds: masks and plans made beside the inputs
    return run

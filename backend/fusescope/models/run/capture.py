"""A call as a CUDA graph of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fusescope.core.errors import Unsupported

_WARM_UP = 3  # calls before a capture, on the capturing stream: workspaces, plans, lazy loading


def plain(call: Callable[[], Any]) -> Callable[[], Any]:
    """``call`` without gradients, launched as it is."""

    def run():
        with torch.no_grad():
            return call()

    run.graph = False
    return run


def captured(
    call: Callable[[], Any], device: str, before: Callable[[], Any] = lambda: None
) -> Callable[[], Any]:
    """``call`` in a CUDA graph on its own tensors: write new values into them to get new results.
    before: what puts back what a call moves on, called before each of those that prepare the capture.

    ``run.replay`` is the replay alone, ``run.result`` gives what the last one computed. Raises Unsupported
    with the first line of the reason where it cannot be captured.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(device)
    with torch.no_grad(), torch.cuda.device(device):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                before()
                call()
            before()
        torch.cuda.synchronize()
        # cuBLAS then takes its workspace from the graph's own pool. One from the common pool could be freed
        # while the graph lives (torch.compile's graphs free them all), and replays would write into whatever
        # is there next.
        torch._C._cuda_clearCublasWorkspaces()
        try:
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                out = call()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            line = next((text for text in str(error).splitlines() if text.strip()), type(error).__name__)
            raise Unsupported(f"it cannot be captured in a CUDA graph: {line}") from error
        finally:
            torch._C._cuda_clearCublasWorkspaces()  # nothing else is to use the pool's

    def run():
        graph.replay()
        return out

    run.graph, run.replay, run.result = True, graph.replay, lambda: out
    run.call = call  # the graph reads tensors that only this holds: masks and plans made next to the inputs
    return run

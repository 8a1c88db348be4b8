"""Which layer did this kernel come from: every forward of a module within a range of its dotted name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

PREFIX = "module: "


@contextlib.contextmanager
def named(model, root: str = "") -> Iterator[None]:
    """Inside, each module's forward is a record_function range "module: encoder.layer.0" (``nesting`` reads
    those).

    model: torch.nn.Module; root: the name of the model itself, its class by default. Hooks, because
    with_modules=True of torch.profiler covers TorchScript alone. The hooks are taken off at the end, also
    when a forward raised. Under torch.compile the compiled part shows as a whole.
    """
    from torch.autograd.profiler import record_function

    top = root or type(model).__name__
    handles, open_ranges = [], []

    def enter(name: str):
        def hook(module, args) -> None:
            span = record_function(f"{PREFIX}{name}")
            span.__enter__()
            open_ranges.append(span)

        return hook

    def leave(module, args, output) -> None:
        if open_ranges:
            open_ranges.pop().__exit__(None, None, None)

    try:
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(enter(f"{top}.{name}" if name else top)))
            handles.append(module.register_forward_hook(leave, always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
        while open_ranges:
            open_ranges.pop().__exit__(None, None, None)

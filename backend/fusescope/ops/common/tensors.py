"""Random inputs and their awkward twins, and results of several tensors as one. Torch is imported inside."""

from __future__ import annotations


def random_tensor(shape, dtype: str, device: str, generator, contiguous: bool = True):
    """Standard-normal tensor of the given shape; never zeros, because zeros are faster on real hardware.

    contiguous=False gives the same kind of values behind a storage offset and permuted strides (first and
    last dimension swapped in memory), which is what a slice or transpose upstream gives a kernel.
    """
    import torch

    values = torch.randn(tuple(shape), generator=generator, device=device, dtype=torch.float32).to(
        getattr(torch, dtype)
    )
    return values if contiguous else awkward(values)


def scale_tensor(shape, dtype: str, device: str, generator, contiguous: bool = True):
    """The same about one, 1 + 0.1 of a standard normal: what the weight of a trained norm looks like."""
    import torch

    normal = random_tensor(shape, "float32", device, generator)
    values = (1.0 + 0.1 * normal).to(getattr(torch, dtype))
    return values if contiguous else awkward(values)


def awkward(values):
    """The same values behind a storage offset; first and last dimension swapped in memory (1-D: every second
    element)."""
    if values.dim() < 2:
        storage = values.new_empty(2 * values.numel() + 1)
        view = storage[1::2][: values.numel()].view(values.shape)
        view.copy_(values)
        return view
    turned = values.transpose(0, -1)
    storage = values.new_empty(values.numel() + 1)
    view = storage[1:].view(turned.shape).transpose(0, -1)
    view.copy_(values)
    return view


def generator_for(device: str, seed: int):
    """A torch.Generator on the device, seeded."""
    import torch

    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    return generator


def in_one(result, count: int):
    """``count`` tensors as one vector, which is what is compared; anything else as it is."""
    import torch

    tensors = isinstance(result, tuple | list) and all(isinstance(t, torch.Tensor) for t in result)
    return torch.cat([t.reshape(-1) for t in result]) if tensors and len(result) == count else result

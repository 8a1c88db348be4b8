"""A script of its own for nvbench: an fp16 product of square matrices, of the size given first; the other
arguments are nvbench's."""

from __future__ import annotations

import sys


def main(size: int, words: list[str]) -> None:
    """Register the product and let nvbench run it."""
    import torch

    from cuda import bench

    def product(state) -> None:
        device = torch.device("cuda", state.get_device() or 0)
        a, b = (torch.randn(size, size, device=device, dtype=torch.float16) for _ in range(2))

        def launch(launched) -> None:
            stream = torch.cuda.ExternalStream(launched.get_stream().addressof(), device=device)
            with torch.cuda.stream(stream):
                a @ b

        torch.cuda.synchronize()
        state.exec(launch)

    bench.register(product)
    bench.run_all_benchmarks([sys.argv[0], *words])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])

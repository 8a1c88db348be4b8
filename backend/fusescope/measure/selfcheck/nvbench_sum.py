"""A script of its own for nvbench: the sum of two fp32 vectors, of as many elements as the first argument
says; the other arguments are nvbench's."""

from __future__ import annotations

import sys


def main(elements: int, words: list[str]) -> None:
    """Register the sum and let nvbench run it."""
    import torch

    from cuda import bench

    def added(state) -> None:
        device = torch.device("cuda", state.get_device() or 0)
        a, b = (torch.randn(elements, device=device) for _ in range(2))

        def launch(launched) -> None:
            stream = torch.cuda.ExternalStream(launched.get_stream().addressof(), device=device)
            with torch.cuda.stream(stream):
                a + b

        torch.cuda.synchronize()
        state.exec(launch)

    bench.register(added)
    bench.run_all_benchmarks([sys.argv[0], *words])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])

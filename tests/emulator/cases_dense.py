"""Cases of products and row-wise operators."""

from __future__ import annotations

from tests.emulator.cases import Case, Emulation, through_function

PRODUCTS = ((1, 1, 1), (7, 7, 7), (33, 33, 33), (64, 72, 40), (70, 136, 200))
ROWS = (1, 7, 33, 256, 500, 1000, 1024, 1030, 2048, 3000, 4096, 5000, 8192, 16384, 32768, 32769)
"""A length for every way a row is distributed over threads, with and without whole 16-byte packs, and one too
long for a block's registers."""


def _add(impl):
    for n in (1, 7, 1000):
        yield Case({"n": n}, 2, n != 7)


def _gemm(impl):
    """Few multiprocessors make the launchers choose larger tiles."""
    for copies, sms, sizes in (
        ("late", 132, PRODUCTS),
        ("late", 3, PRODUCTS[3:]),
        ("early", 1, PRODUCTS[3:]),
    ):
        for i, (m, n, k) in enumerate(sizes):
            values = {"m": m, "n": n, "k": k}
            yield Case(values, 2 if k < 100 else 1, i % 2 == 0, copies, sms)
            yield Case(values, 1, i % 2 == 1, copies, sms)


def _bmm(impl):
    """The tiles are gemm's; here batches."""
    for i, (a, b, m, n, k) in enumerate(
        (
            ("none", "none", 7, 9, 33),
            ("2x1", "3", 24, 16, 72),
            ("none", "2", 9, 12, 20),
            ("2", "none", 65, 70, 9),
        )
    ):
        yield Case({"batch_a": a, "batch_b": b, "m": m, "n": n, "k": k}, 2, i % 2 == 0)


def rows(lengths):
    def cases(impl):
        for i, n in enumerate(lengths):
            values = {"rows": 5 if n <= 1030 else 1, "cols": n}
            yield Case(values, 2 if n <= 2048 else 1, i % 2 == 0)

    return cases


EMULATIONS = {
    "add": Emulation(_add, through_function),
    "gemm": Emulation(_gemm, through_function),
    "bmm": Emulation(_bmm, through_function),
    "softmax": Emulation(rows(ROWS), through_function),
    "layernorm": Emulation(rows(ROWS), through_function),
}

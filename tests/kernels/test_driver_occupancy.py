"""Theoretical occupancy against the driver's own answer, for the kernels that this project builds."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from fusescope.analysis.occupancy import LIMITS, theoretical
from fusescope.core.machine import toolchain
from fusescope.core.machine.archs import arch_of
from fusescope.core.machine.toolchain import find_cuda_tool
from fusescope.kernels import plan, report
from fusescope.kernels.build import compile_objects

pytestmark = pytest.mark.slow

MAX_THREADS, STATIC_BYTES, REGISTERS, MAX_DYNAMIC, NEEDS_CLUSTER = 0, 1, 4, 8, 10
"""CUfunction_attribute of cuda.h."""
BLOCKS = (32, 64, 96, 128, 160, 256, 384, 512, 768, 1024)
DYNAMIC = (0, 1024, 20_000, 49_152, 65_536, 102_400, 167_936, 227 << 10)


def cubins(folder: Path, tool: str, into: Path) -> list[Path]:
    """The machine code for one architecture in an object file, as files."""
    into.mkdir()
    subprocess.run([tool, "-xelf", "all", str(folder.resolve())], cwd=into, check=True, capture_output=True)
    return sorted(into.glob("*.cubin"))


def cuda_objects(arch: str) -> list:
    chain = toolchain.detect()
    if chain.nvcc is None:
        pytest.skip("no nvcc on this machine")
    return [o for o in plan.objects(chain, ("cuda",), (arch,)) if o.name is not None]


class Driver:
    """The few calls of libcuda that are needed; an error is an AssertionError with its name."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")

    def __call__(self, name: str, *arguments) -> None:
        code = getattr(self.lib, name)(*arguments)
        text = ctypes.c_char_p()
        self.lib.cuGetErrorName(code, ctypes.byref(text))
        assert code == 0, f"{name}: {(text.value or b'').decode()}"

    def functions(self, cubin: bytes) -> list[tuple[str, ctypes.c_void_p]]:
        module, count = ctypes.c_void_p(), ctypes.c_uint()
        self("cuModuleLoadData", ctypes.byref(module), cubin)
        self("cuModuleGetFunctionCount", ctypes.byref(count), module)
        found = (ctypes.c_void_p * count.value)()
        self("cuModuleEnumerateFunctions", found, count, module)
        named = []
        for handle in found:
            name = ctypes.c_char_p()
            self(
                "cuFuncLoad", ctypes.c_void_p(handle)
            )  # modules are lazy: a function that nobody asked for has no attributes yet
            self("cuFuncGetName", ctypes.byref(name), ctypes.c_void_p(handle))
            named.append((name.value.decode(), ctypes.c_void_p(handle)))
        return named

    def attribute(self, function, which: int) -> int:
        value = ctypes.c_int()
        self("cuFuncGetAttribute", ctypes.byref(value), which, function)
        return value.value

    def blocks(self, function, block: int, dynamic: int) -> int:
        value = ctypes.c_int()
        self(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            ctypes.byref(value),
            function,
            block,
            ctypes.c_size_t(dynamic),
        )
        return value.value


@pytest.mark.gpu
@pytest.mark.timeout(1200)  # where nothing is built yet, every kernel is compiled here
def test_blocks_on_an_sm_are_those_of_the_driver(tmp_path):
    torch = pytest.importorskip("torch")
    torch.zeros(1, device="cuda")  # makes the context that the modules are loaded into
    cc = torch.cuda.get_device_capability()
    if cc not in LIMITS:
        pytest.skip(f"occupancy is not known for compute capability {cc}")
    objects = cuda_objects(arch_of(*cc))
    tool = find_cuda_tool(toolchain.detect(), "cuobjdump")
    if tool is None:
        pytest.skip("cuobjdump is not installed")
    assert not any(compile_objects(objects).values())
    driver, home, wrong, compared = Driver(), report.folder_of(toolchain.detect()), [], 0
    opt_in = LIMITS[cc].opt_in
    for n, item in enumerate(objects):
        barriers = max((r.barriers for r in report.resources(item.family, item.name, item.arch)), default=0)
        for cubin in cubins(home / item.file, tool, tmp_path / str(n)):
            for name, function in driver.functions(cubin.read_bytes()):
                if driver.attribute(function, NEEDS_CLUSTER):
                    continue  # clusters are left out of the calculation, as its documentation says
                most, static = (
                    driver.attribute(function, MAX_THREADS),
                    driver.attribute(function, STATIC_BYTES),
                )
                registers = driver.attribute(function, REGISTERS)
                # of kernels with barriers of their own only the block that they are written for: those are
                # left out, too
                sizes = [b for b in (*BLOCKS, most) if b <= most] if barriers <= 1 else [most]
                for dynamic in (d for d in DYNAMIC if d + static <= opt_in):
                    driver("cuFuncSetAttribute", function, MAX_DYNAMIC, dynamic)
                    for block in sizes:
                        ours = theoretical(cc, block, registers, static, dynamic).active_blocks
                        theirs = driver.blocks(function, block, dynamic)
                        compared += 1
                        if ours != theirs:
                            wrong.append(
                                f"{item.title} {name}: block {block}, {registers} registers, "
                                f"{static} + {dynamic} bytes: {ours}, driver {theirs}"
                            )
    assert compared > 500 and not wrong, f"{len(wrong)} of {compared} differ:\n" + "\n".join(wrong[:20])


def test_the_machine_code_of_an_object_is_found(tmp_path):
    """What the check above reads, also without a GPU: one cubin an object, and the kernel's registers in
    it."""
    tool = find_cuda_tool(toolchain.detect(), "cuobjdump")
    if tool is None:
        pytest.skip("cuobjdump is not installed")
    item = next(o for o in cuda_objects("sm_90a") if (o.family, o.name) == ("add", "v1_one_element"))
    assert not compile_objects([item])[item.file]
    found = cubins(report.folder_of(toolchain.detect()) / item.file, tool, tmp_path / "out")
    assert len(found) == 1 and found[0].read_bytes().startswith(b"\x7fELF")

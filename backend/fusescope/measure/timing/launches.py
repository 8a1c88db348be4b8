"""What really runs in a call on a GPU: its kernels, read from the nodes of a CUDA graph into which one call
was captured.

The graph names every kernel that the call launches, with grid, block and dynamic shared memory; registers,
static shared and local memory are attributes of the function. No profiler is attached, so this works while
one runs and disturbs nothing.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fusescope.analysis.occupancy import LIMITS, theoretical
from fusescope.core.records import Resources
from fusescope.measure.failures import first_line
from fusescope.measure.timing import driver
from fusescope.measure.timing.graph import CannotCapture
from fusescope.measure.timing.timer import quiet

_KERNEL, _CHILD = 0, 4  # CU_GRAPH_NODE_TYPE_KERNEL, _GRAPH
_STATIC_SHARED, _LOCAL, _REGISTERS = 1, 3, 4  # CUfunction_attribute


class _KernelNodeParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h."""

    _fields_ = (
        ("func", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Launch:
    """One kernel launch. shared: static and dynamic bytes per block; local: stack and spills in bytes per
    thread."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    static_shared: int
    dynamic_shared: int
    local: int

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


def inspect(run: Callable[[], Any], device: str) -> list[Launch]:
    """The launches of one call, in the order of the graph's nodes.

    Raises CannotCapture where the call cannot be captured or torch cannot show a graph, DriverError where the
    driver cannot.
    """
    if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
        raise CannotCapture(f"torch {torch.__version__} cannot show the nodes of a CUDA graph")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    stream = torch.cuda.Stream(device)
    with quiet(), torch.cuda.device(device):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                run()
        except Exception as e:
            raise CannotCapture(f"it cannot be captured in a CUDA graph: {first_line(e)}") from e
        return _launches(graph.raw_cuda_graph())


def resources(
    launches: list[Launch], capability: tuple[int, int], spills: int | None = None
) -> Resources | None:
    """Registers, shared memory and theoretical occupancy of the largest of the launches (most threads in
    all): the one that does the work where small kernels run next to it. ``spills``: the compiler's figure;
    where there is none it stays unknown, because local memory holds a kernel's own arrays too. Occupancy is
    None on a GPU whose limits are not known."""
    if not launches:
        return None
    main = max(launches, key=lambda item: item.blocks * item.threads)
    occupancy = None
    if capability in LIMITS:
        occupancy = theoretical(
            capability, main.threads, main.registers, main.static_shared, main.dynamic_shared
        ).occupancy
    if spills is None and main.local == 0:
        spills = 0
    return Resources(main.registers, main.static_shared + main.dynamic_shared, spills, occupancy)


def short_name(name: str) -> str:
    """A kernel's name without return type, namespaces, template and call arguments."""
    name = re.sub(r"^(void|[\w:]+ ?[*&]?) (?=[\w:(<])", "", name.strip())
    name = name.replace("(anonymous namespace)::", "")
    name = re.split(r"[<(]", name, maxsplit=1)[0]
    return name.rsplit("::", 1)[-1].strip() or name


def backend_name(launches: list[Launch]) -> str | None:
    """The kernels of a call in one line, each once, in order; None for none."""
    names = list(dict.fromkeys(short_name(item.name) for item in launches))
    if not names:
        return None
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _launches(graph: int) -> list[Launch]:
    found = []
    for node in _nodes(graph):
        kind = ctypes.c_int()
        driver.call("cuGraphNodeGetType", node, ctypes.byref(kind))
        if kind.value == _KERNEL:
            found.append(_launch(node))
        elif kind.value == _CHILD:
            child = ctypes.c_void_p()
            driver.call("cuGraphChildGraphNodeGetGraph", node, ctypes.byref(child))
            found += _launches(child.value)
    return found


def _nodes(graph: int) -> list[ctypes.c_void_p]:
    count = ctypes.c_size_t()
    driver.call("cuGraphGetNodes", ctypes.c_void_p(graph), None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    if count.value:
        driver.call("cuGraphGetNodes", ctypes.c_void_p(graph), nodes, ctypes.byref(count))
    return [ctypes.c_void_p(n) for n in nodes]


def _launch(node: ctypes.c_void_p) -> Launch:
    p = _KernelNodeParams()
    driver.call("cuGraphKernelNodeGetParams_v2", node, ctypes.byref(p))
    function = ctypes.c_void_p(p.func)
    if not function:  # launched through the library interface: the node holds a CUkernel
        driver.call("cuKernelGetFunction", ctypes.byref(function), ctypes.c_void_p(p.kernel))

    def attribute(which: int) -> int:
        value = ctypes.c_int()
        driver.call("cuFuncGetAttribute", ctypes.byref(value), ctypes.c_int(which), function)
        return value.value

    return Launch(
        _name(function, p.kernel),
        tuple(p.grid),
        tuple(p.block),
        attribute(_REGISTERS),
        attribute(_STATIC_SHARED),
        p.shared,
        attribute(_LOCAL),
    )


def _name(function: ctypes.c_void_p, kernel: int | None) -> str:
    name = ctypes.c_char_p()
    if driver.has("cuFuncGetName"):
        driver.call("cuFuncGetName", ctypes.byref(name), function)
    elif kernel and driver.has("cuKernelGetName"):
        driver.call("cuKernelGetName", ctypes.byref(name), ctypes.c_void_p(kernel))
    return _demangle(name.value) if name.value else "a kernel that this driver cannot name"


def _demangle(name: bytes) -> str:
    """The C++ name by the runtime's own demangler; the symbol as it is where that cannot read it (a C or
    Triton kernel)."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return name.decode()
    library.__cxa_demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    text = library.__cxa_demangle(name, None, None, ctypes.byref(status))
    if not text:
        return name.decode()
    try:
        return ctypes.string_at(text).decode()
    finally:
        libc = ctypes.CDLL(None)
        libc.free.argtypes = (ctypes.c_void_p,)
        libc.free(text)

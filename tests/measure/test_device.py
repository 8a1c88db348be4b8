"""Device state and launches: what needs no GPU here, what needs one marked."""

import ctypes

import pytest

from fusescope.core.machine import load, nvml
from fusescope.measure import machine
from fusescope.measure.device import device_state
from fusescope.measure.timing import driver, graph, launches
from fusescope.measure.timing.launches import Launch


def test_faults_are_told_from_normal_reasons():
    assert nvml.faults(0x1 | 0x2) == []
    assert nvml.faults(0x4 | 0x40) == ["hardware thermal slowdown"], "the power cap is normal at full load"
    assert [len(nvml.faults(bit)) for bit in (0x8, 0x20, 0x40, 0x80)] == [1] * 4
    assert nvml.named(0x1 | 0x2 | 0x4 | 0x40) == ["power cap", "hardware thermal slowdown"]


@pytest.mark.parametrize(
    "clocks, others, note",
    [
        ([1700, 1710, 1705], [1700, 1705, 1710], None),
        ([1688] * 3, [1705] * 3, None),
        ([1600, 1610, 1605], [1700, 1705, 1710], "SM clock 5.9 % below the baseline's"),
        ([1980], [1755], "SM clock 12.8 % above the baseline's"),
        ([None], [1755], None),
        ([1980], [], None),
    ],
)
def test_only_a_clock_that_differs_is_marked(clocks, others, note):
    states = [{"sm_mhz": 1700, "memory_mhz": 2619, "reasons": 0x4}] * 3
    found = device_state.conditions(states, clocks, others, 7)
    assert found.clock_note == note and found.reasons == ("power cap",) and found.compared == 7
    assert found.clock.endswith("MHz (power cap)") and found.memory_mhz == 2619 and found.busy is None


def test_busy_rounds_are_marked():
    states = [{"busy": None}, {"busy": "others", "other_cpus": 1.5, "waited": 0.2}, {"other_cpus": 0.1}, {}]
    found = device_state.conditions(states, [], [], 0)
    assert (found.busy, found.busy_rounds, found.other_cpus, found.waited) == ("others", 0.25, 1.5, 0.2)


def test_the_state_of_a_cpu():
    state = device_state.reader("cpu")()
    assert state["load"] >= 0 and state["faults"] == [] and (state["mhz"] is None or state["mhz"] > 100)
    assert state["busy"] is None, "nothing is known in the first half second"


@pytest.mark.parametrize(
    "listed, said",
    [
        ([7, 20, 30], "python (30) use this GPU"),
        ([7, 20], None),
        ([30], None),
    ],
)
def test_others_on_a_gpu_are_said_but_for_processes_of_the_same_comparison(monkeypatch, listed, said):
    monkeypatch.setattr(device_state.os, "getpid", lambda: 7)
    monkeypatch.setattr(device_state, "_siblings", frozenset())
    processes = [{"pid": pid, "name": "python"} for pid in listed]
    monkeypatch.setattr(device_state.environment, "gpu_of", lambda device: {"processes": processes})
    device_state.expect([20, 21])
    assert device_state.Others("cuda:0").sentence() == said


def counted(monkeypatch, *readings):
    """load.Load over readings of (wall, busy, own, stolen, waited, held), in seconds."""
    left = iter(readings)
    monkeypatch.setattr(load, "_counters", lambda cpus: next(left))
    return load.Load({0, 1})


@pytest.mark.parametrize(
    "reading, says",
    [
        ((1.0, 1.0, 0.9, 0.0, 0.0, 0.0), None),
        ((1.0, 2.0, 0.8, 0.0, 0.0, 0.0), "other processes use 1.2 of 2 CPUs"),
        ((1.0, 1.0, 1.0, 0.1, 0.0, 0.0), "the hypervisor takes 5 % of the CPU time"),
        ((1.0, 1.0, 1.0, 0.0, 0.2, 0.0), "the measurement waits for a CPU 20 % of the time"),
        ((1.0, 1.0, 1.0, 0.0, 0.0, 0.1), "the container's CPU limit is reached"),
    ],
)
def test_who_else_uses_the_cpus(monkeypatch, reading, says):
    found = counted(monkeypatch, (0.0,) * 6, reading).read()
    assert load.sentence(found, 2) == says


def test_load_is_over_the_last_half_second(monkeypatch):
    readings = [(t / 10, 0.2 * t if t > 20 else 0.0, 0.0, 0.0, 0.0, 0.0) for t in range(40)]
    cpus = counted(monkeypatch, *readings)
    found = [cpus.read() for _ in readings[1:]]
    assert found[3] is None and found[10]["other_cpus"] == 0 and found[-1]["other_cpus"] == pytest.approx(2.0)


def test_waiting_for_idle_cpus_ends(monkeypatch):
    said, quiet = [], round(load.QUIET_S / load.WINDOW_S)
    loads = iter([2.0, 0.0, 0.0, 2.0, *[0.0] * quiet])  # a pause of the others is not their end
    monkeypatch.setattr(load.Load, "read", lambda self: {"other_cpus": next(loads)} | OTHERWISE)
    assert load.idle(60.0, said.append, lambda s: None) is None and next(loads, None) is None
    assert len([text for text in said if "other processes use 2.0" in text]) == 2
    monkeypatch.setattr(load.Load, "read", lambda self: {"other_cpus": 2.0} | OTHERWISE)
    assert "other processes use 2.0" in load.idle(0.0, said.append, lambda s: None)


def test_each_sampling_waits_and_all_of_them_at_most_so_long(monkeypatch):
    now = iter([2.0, 2.0, 0.0, 2.0, 2.0])  # what others use before each sampling
    monkeypatch.setattr(load.Load, "read", lambda self: {"other_cpus": next(now)} | OTHERWISE)
    clock, asked = [0.0], []

    def idle(wait_s, step):
        asked.append(wait_s)
        clock[0] += 40.0
        return None

    monkeypatch.setattr(load, "idle", idle)
    monkeypatch.setattr(machine.time, "monotonic", lambda: clock[0])
    reporter = Noted()
    waits = machine.Idle("cpu", load.Load(), 100.0, reporter)
    for _ in range(5):
        waits.wait(lambda text: None)
    assert asked == [100.0, 60.0, 20.0]  # the third sampling found the CPUs idle
    assert reporter.facts == [{"busy": None}]


class Noted:
    def __init__(self):
        self.facts, self.lines = [], []

    def environment(self, **facts):
        self.facts.append(facts)

    def log(self, line):
        self.lines.append(line)


OTHERWISE = {"steal": 0.0, "waited": 0.0, "quota": 0.0}


def test_kernel_names_are_shortened():
    assert (
        launches.short_name("void (anonymous namespace)::add_vectorised<float>(float const*, float*, long)")
        == "add_vectorised"
    )
    assert (
        launches.short_name("void at::native::vectorized_elementwise_kernel<4, at::Functor<float>>(int)")
        == "vectorized_elementwise_kernel"
    )
    assert launches.short_name("sm90_xmma_gemm_f16f16_f16f32_tn_n") == "sm90_xmma_gemm_f16f16_f16f32_tn_n"
    assert launches.short_name("triton_poi_fused_add_0") == "triton_poi_fused_add_0"


def test_symbols_are_demangled():
    assert launches._demangle(b"_Z3addPKfS0_Pfl") == "add(float const*, float const*, float*, long)"
    assert launches._demangle(b"triton_poi_fused_add_0") == "triton_poi_fused_add_0"


def launch(name="add", grid=100, block=256, registers=32, static=0, dynamic=0, local=0):
    return Launch(name, (grid, 1, 1), (block, 1, 1), registers, static, dynamic, local)


def test_resources_are_those_of_the_largest_launch():
    small, large = (
        launch("fill", grid=1),
        launch("attention", block=384, registers=168, static=1024, dynamic=134144 - 1024),
    )
    r = launches.resources([small, large, small], (9, 0))
    assert (r.registers, r.shared, r.spills) == (168, 134144, 0) and r.occupancy == pytest.approx(12 / 64)
    assert launches.resources([], (9, 0)) is None
    assert launches.resources([launch(local=64)], (9, 0)).spills is None, (
        "local memory may be the kernel's own arrays"
    )
    assert launches.resources([launch(local=64)], (9, 0), spills=8).spills == 8


def test_backend_names():
    assert launches.backend_name([]) is None
    assert launches.backend_name([launch("a"), launch("b"), launch("a")]) == "a, b"
    assert launches.backend_name([launch(n) for n in "abcdef"]) == "a, b, c, d and 2 more"


def test_the_struct_has_the_layout_of_cuda_h():
    p = launches._KernelNodeParams
    assert (p.func.offset, p.grid.offset, p.block.offset, p.shared.offset) == (0, 8, 20, 32)
    assert (p.parameters.offset, p.extra.offset, p.kernel.offset, p.context.offset, ctypes.sizeof(p)) == (
        40,
        48,
        56,
        64,
        72,
    )


def test_sets_that_exceed_l2():
    assert graph.sets_needed(200 << 20, 50 << 20) == 1
    assert graph.sets_needed(60 << 20, 50 << 20) == 3
    for size in (1 << 20, 3 << 20, 40 << 20):
        assert (graph.sets_needed(size, 50 << 20) - 1) * size >= 2 * (50 << 20), (
            "twice L2 lies between two uses of a set"
        )
    with pytest.raises(graph.CannotCapture, match="sets of 1000 bytes"):
        graph.sets_needed(1000, 50 << 20)


def test_a_missing_driver_is_said():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        with pytest.raises(driver.DriverError, match="the CUDA driver library cannot be opened"):
            driver.call("cuInit", 0)
    else:
        with pytest.raises(driver.DriverError, match="has no cuNoSuchThing"):
            driver.call("cuNoSuchThing")


@pytest.mark.gpu
class TestGpu:
    """Against a kernel whose duration is planted: torch.cuda._sleep spins for a number of clock cycles."""

    CYCLES = 200_000

    @pytest.fixture
    def known_ms(self):
        import torch

        torch.cuda._sleep(self.CYCLES)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(20):
            torch.cuda._sleep(self.CYCLES)
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 20

    def planted(self):
        import torch

        torch.cuda._sleep(self.CYCLES)

    def test_graph_and_eager_find_the_planted_duration(self, known_ms):
        from fusescope.measure.timing.timer import CudaEager

        for sampler in (
            graph.CudaGraph([self.planted], "cuda:0", "graph"),
            CudaEager(self.planted, "cuda:0"),
        ):
            samples = sorted(sampler.take(10))
            assert 0.8 * known_ms < samples[5] < 1.5 * known_ms, sampler.mode

    def test_what_cannot_be_captured_is_said_and_harms_nothing(self):
        import torch

        x = torch.ones(10, device="cuda")
        with pytest.raises(graph.CannotCapture):
            graph.CudaGraph([lambda: x.sum().item()], "cuda:0", "graph")
        assert float(x.sum()) == 10
        graph.CudaGraph([lambda: x + 1], "cuda:0", "graph").take(2)

    def test_graphs_of_one_pool_share_all_but_the_results_that_are_looked_at(self):
        import torch

        x, pool = torch.ones(16 << 20, device="cuda"), torch.cuda.graph_pool_handle()
        graphs = [graph.CudaGraph([lambda: ((x + 1) * 2 + 3) * 4], "cuda:0", "graph", pool)]
        one = torch.cuda.memory_reserved()
        graphs += [
            graph.CudaGraph([lambda: ((x + 1) * 2 + 3) * 4], "cuda:0", "graph", pool) for _ in range(7)
        ]
        # less where memory was free that other tests have left
        assert torch.cuda.memory_reserved() <= one + 7 * x.nbytes, (
            f"{len(graphs)} graphs of three temporaries"
        )

    def test_rotation_calls_every_set(self):
        import torch

        sets = [torch.full((1 << 20,), float(i), device="cuda") for i in range(5)]
        counts = torch.zeros(5, device="cuda")

        def run(i):
            def call():
                counts[i] += 1
                return sets[i] * 2

            return call

        sampler = graph.CudaGraph([run(i) for i in range(5)], "cuda:0", "graph_cold")
        torch.cuda.synchronize()  # replays run on another stream than zero_
        counts.zero_()
        torch.cuda.synchronize()
        sampler.take(3)
        torch.cuda.synchronize()
        assert len(set(counts.tolist())) == 1 and counts[0] > 0

    def test_launches_of_a_call(self):
        import torch

        x = torch.randn(1 << 20, device="cuda")
        found = launches.inspect(lambda: torch.relu(x + 1), "cuda:0")
        assert len(found) == 2 and all(
            item.registers > 0 and item.threads >= 32 and item.blocks >= 1 for item in found
        )
        assert "elementwise" in launches.backend_name(found)
        capability = torch.cuda.get_device_capability()
        assert 0 < launches.resources(found, capability).occupancy <= 1

    def test_state_of_the_gpu(self):
        state = device_state.reader("cuda:0")()
        assert device_state.clock_reader("cuda:0")() > 0
        assert state["sm_mhz"] > 0 and 0 < state["temperature_c"] < 120 and isinstance(state["faults"], list)

    def test_a_comparison(self, wrong):
        from fusescope.core.records import BenchSpec
        from fusescope.core.reporter import Collect
        from fusescope.measure import bench

        reporter = Collect()
        bad = ("unwritten", "unwritten_after_luck", "ignores_strides", "remembers")
        names = (wrong("right"), *(wrong(name) for name in bad), "eager", "v1_one_element")
        bench.run(
            BenchSpec("add", names, ({"n": 1 << 22},), "eager", device="cuda:0", budget_s=1.0), reporter
        )
        by_name = {r.impl.rpartition(":")[2]: r for r in reporter.records}
        assert {by_name[name].status for name in bad} == {"wrong"}
        for name in ("right", "eager", "v1_one_element"):
            r = by_name[name]
            assert r.status == "ok", r.reason
            assert all(getattr(r.time_ms, m).n >= 10 for m in ("eager", "eager_cold", "graph", "graph_cold"))
            assert (
                r.speedup.of == "graph"
                and r.resources.registers > 0
                and 0 < r.resources.occupancy <= 1
                and r.backend
            )
        assert by_name["v1_one_element"].resources.spills == 0

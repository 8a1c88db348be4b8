"""Communication in one rank's profile: named in the verdict, bounded in the advice."""

import pytest

from fusescope.analysis.profile.advice import recommend
from fusescope.analysis.profile.device_time import DeviceTime
from fusescope.analysis.profile.verdict import KINDS, in_short, verdict
from fusescope.analysis.ranks.activities import is_communication

NCCL = "ncclDevKernel_AllReduce_Sum_f16_RING_LL"


def step(compute=0, overlapped=0, exposed=0, memory=0, longest=(), **idle):
    """(summary, parts) of one device; idle: ns by cause."""
    busy = {"compute_ns": compute, "overlapped_ns": overlapped, "exposed_ns": exposed, "memory_ns": memory}
    whole = busy | {f"idle_{cause}_ns": ns for cause, ns in idle.items()}
    kernels = compute + 2 * overlapped + exposed
    talks = {NCCL: (4, overlapped + exposed)} if overlapped + exposed else {}
    device = {"first_ns": 0, "last_ns": sum(whole.values()), "busy_ns": sum(busy.values())}
    device |= {"device": 0, "kernel_ns": kernels, "copy_ns": memory}
    gaps = [{"ts_ns": 0, "dur_ns": ns, "cause": cause, "before": "a", "after": "b"} for cause, ns in longest]
    causes = {cause: {"gaps": 100, "total_ns": ns} for cause, ns in idle.items()}
    summary = {"devices": [device], "idle": causes, "longest_gaps": gaps, "rows": {"kernels": 9}}
    return summary, DeviceTime(whole, {1: whole}, talks, kernels)


def test_the_largest_part_decides_and_is_cited():
    summary, parts = step(compute=200_000, overlapped=100_000, exposed=400_000, host=300_000)
    found = verdict(summary, parts=parts, steps=2)
    text = "; ".join(found.because)
    assert found.kind == "communication-bound" and found.kind in KINDS
    assert "(2 steps); 30 % because the host" in text
    assert "communication takes 62.5 % of the kernel time; for 40 % of the time nothing computes" in text
    assert (
        "communication alone is the largest part of the time, 400 µs, before kernels that compute 300 µs, "
        "waiting for the host 300 µs" in text
    )
    assert in_short(found) == "communication-bound, 40 % exposed"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"compute": 200, "exposed": 300, "host": 500}, "launch-bound"),
        ({"compute": 400, "overlapped": 100, "exposed": 450}, "inconclusive"),
        ({"compute": 300, "overlapped": 200, "launched": 500}, "inconclusive"),
        ({"compute": 100, "exposed": 300, "host": 250, "synchronised": 250}, "launch-bound"),
        ({"compute": 100, "exposed": 300, "host": 250, "launched": 250}, "communication-bound"),
        ({"memory": 900, "exposed": 100}, "copy-bound"),
    ],
)
def test_other_limits_stay(given, kind):
    summary, parts = step(**given)
    found = verdict(summary, parts=parts)
    assert found.kind == kind
    assert "communication takes" in "; ".join(found.because)


def test_single_gaps_are_left_out_of_all_parts():
    given = {"compute": 200, "exposed": 300, "host": 100_400, "longest": [("host", 100_150)]}
    summary, parts = step(**given)
    found = verdict(summary, parts=parts)
    assert found.kind == "communication-bound" and "the largest part of the rest" in found.because[-1]
    assert "waiting for the host 0.25 µs" in found.because[-1]


def test_the_gain_is_bounded_by_what_is_exposed_and_comes_before_graphs():
    summary, parts = step(compute=200_000, overlapped=100_000, exposed=400_000, host=500_000)
    first, graph, *_ = recommend(summary, steps=2, parts=parts)
    assert first.title == "Hide communication behind compute" and first.gain == pytest.approx(1200 / 800)
    assert "400 µs of 500 µs of communication run while no kernel computes, 200 µs per step" in first.says
    assert f"{NCCL}, 4 calls, 500 µs" in first.says and "bucket_cap_mb" in first.says
    assert graph.title == "Capture the step in a CUDA graph" and graph.gain > first.gain
    hidden = step(compute=500_000, overlapped=480_000, exposed=20_000)
    assert not recommend(hidden[0], parts=hidden[1]), "2 % is little"
    summary, parts = step(compute=5, overlapped=5)
    assert "kernels compute during all of it" in "; ".join(verdict(summary, parts=parts).because)


def test_without_communication_nothing_is_said_of_it():
    summary, parts = step(compute=500, host=500)
    assert "communication" not in "; ".join(verdict(summary, parts=parts).because)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8", True),
        (NCCL, True),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", True),
        ("void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)", True),
        ("void trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<…>", True),
        ("void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, true>", True),
        ("two_shot_all_reduce_kernel", True),
        ("void mscclpp::allreduce7<float>(float*)", True),
        ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)", True),
        ("userbuffers_fp16_sum_inplace_gpu_rr_rs_oop", True),
        ("void blockAllReduceSumKernel<float>", False),
        ("void at::native::reduce_kernel<512, 1>", False),
        ("void cub::DeviceReduceKernel<…>", False),
        ("void softmax_warp_forward<…>", False),
        ("_fused_gather_kernel", False),
    ],
)
def test_kernels_that_communicate(name, is_one):
    assert is_communication(name, on_device=True) == is_one

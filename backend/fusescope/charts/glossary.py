"""What the words on the pages mean, one sentence each: the help of labels and the list on the Help page."""

from __future__ import annotations

TERMS = {
    "baseline": "The implementation that speed-ups are relative to.",
    "speed-up": "How many times as fast as the baseline: the ratio of the median times; above 1 is faster.",
    "95 % interval": "Where the speed-up lies with 95 % confidence; the verdict is derived from it.",
    "same within 1 %": "The whole interval lies within 1 % of 1: no difference that matters.",
    "inconclusive": "Sampling was too noisy, or stopped too early, to say which is faster.",
    "case": "One setting of an operator: its sizes and its mask.",
    "implementation": "Anything that computes an operator: a kernel of ours, a peer, a function of yours.",
    "peer": "An implementation by others that ours is compared with: PyTorch, cuBLAS, FlashAttention.",
    "execution mode": "How a whole model runs: eager, sdpa, torch.compile, fused and so on.",
    "check": "The result is compared with a float64 reference before it is timed; a wrong one gets no time.",
    "tolerance": "The largest error that the dtype and the sums explain; beyond it a result is wrong.",
    "kernel time": "Time of the kernels alone, by replaying a CUDA graph: no launch overhead.",
    "eager call": "Time of the call as Python makes it, launch overhead included.",
    "warm / cold cache": "Cold: the last-level cache is flushed before each sample. Warm: it is not.",
    "roofline": "The time that memory traffic and arithmetic need at the rates measured on this device.",
    "minimum traffic": "Bytes that any implementation must move: inputs read once, outputs written once.",
    "occupancy": "Warps that a multiprocessor holds over those it can hold; high alone does not mean fast.",
    "spills": "Registers that the compiler moved to memory because a thread has no more.",
    "packed (padded, varlen)": "Sequences of different lengths stored one after the other, without padding.",
    "recorded run": "A run on other hardware that ships with the project, such as an H200.",
}


def of(term: str) -> str:
    """The sentence of a term; KeyError where it has none."""
    return TERMS[term]


def table() -> str:
    """All terms as Markdown."""
    return "\n".join(
        f"- **{term}**: {text}" for term, text in sorted(TERMS.items(), key=lambda t: t[0].lower())
    )

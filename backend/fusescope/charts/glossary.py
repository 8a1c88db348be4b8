"""What the words on the pages mean, one sentence each: the help of labels and the list on the Help page."""

from __future__ import annotations

TERMS = {
    "baseline": "The implementation that speed-ups are relative to.",
    "speed-up": "How many times as fast as the baseline: the ratio of the median times; above 1 is faster.",
    "95 % interval": "Where the speed-up lies with 95 % confidence; few samples, and sampling that did not "
    "converge, make it wide. The verdict follows from it alone.",
    "same within 1 %": "The whole interval lies within 1 % of 1: no difference that matters.",
    "inconclusive": "The interval crosses the edge of “same”: faster and slower, or same, are all possible. "
    "An idle machine, more time or more processes settle it.",
    "tie": "The lowest times of a case that the samples do not tell apart: “same”, or inconclusive.",
    "case": "One setting of an operator: its sizes and its mask.",
    "implementation": "Anything that computes an operator: a kernel of ours, a peer, a function of yours.",
    "peer": "An implementation by others that ours is compared with: PyTorch, cuBLAS, FlashAttention.",
    "execution mode": "How a whole model runs: eager, sdpa, torch.compile, fused and so on.",
    "sdpa-graph-trap": "sdpa captured in a CUDA graph as it comes: Hugging Face builds a mask that SDPA's "
    "fused backends reject, and the graph keeps the slow path. It shows that mistake; compare with "
    "sdpa-graph.",
    "check": "The result is compared with a float64 reference before it is timed; a wrong one gets no time.",
    "tolerance": "The largest error that the dtype and the sums explain; beyond it a result is wrong.",
    "kernel time": "Time of the kernels alone, by replaying a CUDA graph: no launch overhead.",
    "eager call": "Time of the call as Python makes it, launch overhead included.",
    "warm / cold cache": "Cold: the last-level cache is flushed before each sample. Warm: it is not.",
    "roofline": "The time that memory traffic and arithmetic need at the rates measured on this device.",
    "minimum traffic": "Bytes that any implementation must move: inputs read once, outputs written once.",
    "occupancy": "Warps that a multiprocessor holds over those it can hold; high alone does not mean fast.",
    "spills": "Registers that the compiler moved to memory because a thread has no more.",
    "equal / unequal lengths": "Sequences of a batch: all as long as the longest, or evenly spread from 0.2 "
    "of it to it, mean 0.6. Unequal ones are padded to the longest, or packed.",
    "packed (padded, varlen)": "Sequences of different lengths stored one after the other, without padding.",
    "tile": "A square of the attention matrix, 64 × 64 elements unless said; a kernel skips empty ones.",
    "elements kept": "The share of query-key pairs that the mask keeps; 1 over it is the ideal speed-up.",
    "keys per query": "How many keys a query attends to under the mask.",
    "KV heads (GQA, MQA)": "Heads of keys and values, each shared by several query heads: grouped-query "
    "attention; MQA has one.",
    "bias (ALiBi, relative positions)": "A number added to each score, given per head, query and key.",
    "effective keys": "2^entropy of a query's probabilities: how many keys share its weight.",
    "latency-, memory-, compute-bound": "What limits it: waiting, bytes per second, or FLOP per second.",
    "idle time": "Time in which no kernel and no copy runs on the device.",
    "exposed communication": "Time in which a collective ran on a rank and no compute kernel did.",
    "arrival skew": "Time from the first rank that comes to a collective to the last, clocks corrected.",
    "critical path": "The chain of activities over all ranks that determined when the job ended.",
    "warp stall reasons": "Why warps could not issue their next instruction, sampled by Nsight Compute.",
    "scheme": "Which neighbours of a layer's 15 operators are fused into one kernel.",
    "cost model": "A model that predicts times from runs that were measured.",
    "dtype": "The number format of inputs and results: float32, float16 or bfloat16.",
    "device": "Where it ran: a GPU by its name, or the CPU.",
    "prefill / decode": "Prefill: the whole prompt at once. Decode: one further token, with the keys cached.",
    "persistent / per-call memory": "Kept between calls (weights, plans) / handed out during one call.",
    "architecture": "A GPU generation as nvcc names it: sm_90a is Hopper (H100, H200).",
    "recorded run": "A run on other hardware that ships with the project, such as an H200.",
}


def of(term: str) -> str:
    """The sentence of a term; KeyError where it has none."""
    return TERMS[term]


_LABELS = {
    "compared with": "baseline",
    "× baseline": "speed-up",
    "cache": "warm / cold cache",
    "phase": "prefill / decode",
    "tile size": "tile",
    "gpu": "device",
    "lengths": "equal / unequal lengths",
    "interval": "95 % interval",
    "kv heads": "KV heads (GQA, MQA)",
    "bias": "bias (ALiBi, relative positions)",
    "achieved occupancy": "occupancy",
    "theoretical occupancy": "occupancy",
}
"""Labels of pages that are another name of a term."""


def about(label: str) -> str | None:
    """The sentence of the term that a label or heading names, whatever its case, number or unit: "Dtype",
    "implementations", "occupancy (%)"; None where it names none."""
    word = label.partition(" (")[0].strip().lower()
    for name in (word, word.removesuffix("s")):
        name = _LABELS.get(name, name)
        if name in TERMS:
            return TERMS[name]
    return None


def table() -> str:
    """All terms as Markdown."""
    return "\n".join(
        f"- **{term}**: {text}" for term, text in sorted(TERMS.items(), key=lambda t: t[0].lower())
    )

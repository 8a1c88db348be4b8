"""What each chart says: how to read it, by the beginning of its title, with the words it needs."""

from __future__ import annotations

import re

import plotly.graph_objects as go

from fusescope.charts import glossary

_READING: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Speed-up of our best kernel",
        "One cell per mask and shape: how many times as fast as the best peer our best kernel is. Green is "
        "faster, purple slower; a frame: proven slower; a ?: not proven either way. An empty cell was not "
        "measured. A click opens its comparison.",
        ("speed-up", "peer"),
    ),
    (
        "Worst cells first",
        "The same cells as dots, the least favourable on top. Right of 1× ours is faster; the names are our "
        "kernel and the peer it is compared with.",
        ("speed-up", "peer"),
    ),
    (
        "Rate of our best kernel",
        "TFLOP/s counted over the elements that the mask keeps (filled) and over all elements of the tiles "
        "that the kernel executes (open). The line is the matrix rate measured on the device.",
        ("tile",),
    ),
    (
        r"Speed-up of B|Speed-up of \w over|Speed-up over \w$|Speed-up of .* over ",
        "One bar per implementation and case: right of 1× the other run is faster than the base, left "
        "slower. Whiskers are the 95 % interval; a faint bar is inconclusive.",
        ("speed-up", "95 % interval", "inconclusive"),
    ),
    (
        "Speed-up over the fastest on the full mask",
        "Each dot is a measured mask. The curve is the ideal: time in proportion to the elements kept. A dot "
        "on the curve has turned all of its sparsity into speed. The rate of memory may allow less: hover "
        "for a dot's limit.",
        ("speed-up", "elements kept"),
    ),
    (
        "Speed-up over",
        "Above 1× is faster than the baseline. A gap is a case without a valid time.",
        ("speed-up", "95 % interval", "baseline"),
    ),
    (
        "Speed-up of the best scheme",
        "How many times as fast as each baseline the best scheme is; whiskers are the 95 % interval.",
        ("speed-up", "scheme"),
    ),
    (
        "Latency by|TFLOP/s by|GB/s by|.* by (batch|seq|heads|head_dim|rows|cols|[mnk])$",
        "One curve per implementation over the swept parameter. A gap is a case without a valid time.",
        ("kernel time", "eager call"),
    ),
    (
        "Throughput over latency",
        "One curve per execution mode, a point per batch: up is more tokens per second, left is a shorter "
        "wait for each. A larger batch moves up and right; the best curve is above and left of the others.",
        ("execution mode",),
    ),
    (
        "Worst error against the reference",
        "One dot per implementation, left is more accurate. The line is the tolerance: right of it a result "
        "is wrong and gets no time.",
        ("check", "tolerance"),
    ),
    (
        "All samples",
        "Each dot is a sample, in sampling order from top to bottom; the outline is their histogram, the "
        "line the median. Open circles: cold cache.",
        ("warm / cold cache",),
    ),
    (
        ".*edit by edit",
        "One step per run, oldest at the left; lower is faster. Whiskers are the 95 % interval of the "
        "median, a dotted line an edit of the kernel's source between two runs. “Same machine code”: both "
        "sources compile to the same instructions (sm_90a), so a difference there is not the edit's.",
        ("kernel time",),
    ),
    (
        ".*after vs before the edit",
        "Right of 1× the edit made it faster. The interval is the widest that both runs allow, because they "
        "were not interleaved.",
        ("speed-up", "95 % interval"),
    ),
    (
        "Roofline",
        "Up is more arithmetic per second, right is more arithmetic per byte. The slope is the bandwidth, "
        "the flat part the arithmetic rate: a point near the slope is memory-bound, near the flat part "
        "compute-bound, far below both latency-bound.",
        ("roofline", "minimum traffic", "latency-, memory-, compute-bound"),
    ),
    (
        "Steps on",
        "One bar per step of the profile. What runs at once on several streams counts once: kernels before "
        "communication before copies, kernels and communication at once as such; it belongs to the step that "
        "launched it. So the bars add up to the time from the first to the last activity. Idle because the "
        "host had not launched calls for a CUDA graph or larger work; communication alone for overlap.",
        ("idle time",),
    ),
    (
        "Breakdown of",
        "Each box is as large as its kernels' time; a box holds what it called. Kernels that ran at the "
        "same time on several streams add up to more than wall time.",
        ("kernel time",),
    ),
    (
        "Timeline",
        "One lane per stream or thread; colours are kernels by name. Far out, the shade is the share of time "
        "in which the lane was busy; white is idle.",
        ("idle time",),
    ),
    (
        "Changes by",
        "The largest differences first: left of zero the second profile takes less time, right more.",
        (),
    ),
    (
        "Speed of light",
        "How much of each unit's peak a launch used. One bar near its end names the limit; all short means "
        "latency: too few warps in flight, or each waits for the one before.",
        ("latency-, memory-, compute-bound",),
    ),
    (
        "Warp stall reasons",
        "In which state warps were, on average over the launch. The longest part that is not “selected” is "
        "what the scheduler waited for.",
        ("warp stall reasons",),
    ),
    (
        "Warp stalls by",
        "The lines (or instructions) on which warps were sampled most, longest first, by what they waited "
        "for. The wait is charged to the instruction that needs the value, not to the load that is late.",
        ("warp stall reasons",),
    ),
    (
        "Memory chart",
        "Bytes of one launch between the levels of memory. Wide at L1 and thin at DRAM means the caches "
        "work; equally wide means that each byte is fetched once.",
        ("minimum traffic",),
    ),
    (
        "Hierarchical roofline",
        "One point per level of memory, all at the launch's rate. Where the point is near the roof of its "
        "own level, that level limits the kernel; points far apart: caches serve most of the traffic.",
        ("roofline", "minimum traffic"),
    ),
    (
        "Memory over time",
        "Allocated: handed out by torch. Reserved: held from the driver. NVML: of the whole process. Dashed: "
        "predicted from the model's sizes.",
        ("persistent / per-call memory",),
    ),
    (
        "The device over the run",
        "Clocks, power, temperature and utilisation as sampled. A red band is a time in which the driver "
        "lowered the clocks: times measured there are not comparable.",
        (),
    ),
    (
        "Occupancy by",
        "Theoretical occupancy as one input varies: each stair is one block more or less per multiprocessor.",
        ("occupancy",),
    ),
    (
        "Error by depth|Error of each operation alone",
        "The error of each execution mode along the model, against float64. A jump is the operation that "
        "loses accuracy; a slow rise is rounding that adds up.",
        ("execution mode", "tolerance"),
    ),
    (
        "Error in units in the last place",
        "How far results are from float64, in steps of the dtype: 0 and 1 are rounding, long tails are not.",
        ("tolerance",),
    ),
    (
        "Execution mode, time and speed-up",
        "One cell per model and shape: the fastest execution mode, its time, and its speed-up over sdpa. A "
        "click opens the comparison.",
        ("execution mode", "speed-up"),
    ),
    (
        "Time breakdown by layer part",
        "The kernels' time of one call, by part of the model, from one profiled pass.",
        ("execution mode", "kernel time"),
    ),
    (
        ".*[Pp]arameters",
        "Each box is as large as the share of parameters it holds; a click zooms in.",
        (),
    ),
    (
        "Computed share by tile size",
        "The share of all elements that a kernel computes when it skips empty tiles of that size. The dashed "
        "line is the share the mask keeps: no tile size goes below it.",
        ("tile", "elements kept"),
    ),
    (
        "Keys per query|Live tiles per row",
        "How much work each query (or row of tiles) is, from the first to the last. A steep curve makes some "
        "blocks wait for others.",
        ("tile",),
    ),
    (
        "Storage of the pattern",
        "Bytes of each format for this mask's pattern, on a logarithmic axis: shorter is smaller.",
        (),
    ),
    (
        "Skippable tiles and the resulting error",
        "Bars: tiles whose largest probability is below the threshold. Lines: the error of the output when "
        "they are skipped, for the worst and the median head.",
        ("tile",),
    ),
    (
        "Distribution in",
        "How large the head's probabilities are; the bar at the left counts exact zeros.",
        (),
    ),
    (
        "Probabilities of",
        "The head's probabilities, query by key, darker is larger, on a logarithmic scale.",
        (),
    ),
    (
        "Schemes by time",
        "Every measured scheme from the fastest to the slowest; lines are the baselines. A click shows the "
        "scheme.",
        ("scheme",),
    ),
    (
        "Best so far",
        "The fastest scheme found after each evaluation: a strategy whose curve falls earlier needs fewer.",
        ("scheme",),
    ),
    (
        "Predicted vs measured",
        "One dot per scheme that the cost model did not learn from; on the diagonal the prediction is right.",
        ("cost model", "scheme"),
    ),
    (
        "Feature importance",
        "What the cost model goes by: the share of its error that each feature removes.",
        ("cost model",),
    ),
    (
        "Which boundaries matter",
        "How much slower the layer is on average when a boundary is cut: the longest are worth fusing.",
        ("scheme",),
    ),
    (
        r"\d+ kernels?",
        "One colour per segment that runs as one kernel; bytes are its minimum traffic. + fuses two "
        "neighbours, − cuts between them.",
        ("scheme", "minimum traffic"),
    ),
    (
        ".*(share|zero|entropy|keys|skipp|live|near|probab).*",
        "One cell per layer and head; darker is larger. A click shows that head.",
        ("effective keys",),
    ),
)


def of(fig: go.Figure) -> str:
    """How to read the figure, with the words it needs, as Markdown; "" for one without a title."""
    return of_title(title(fig))


def of_title(text: str) -> str:
    """The same, for a title."""
    if not text:
        return ""
    for pattern, says, terms in _READING:
        if re.match(pattern, text, re.IGNORECASE):
            return "\n\n".join([says, *(f"**{term}**: {glossary.of(term)}" for term in terms)])
    return ""


def title(fig: go.Figure) -> str:
    """The first line of a figure's title, without markup; "" for a figure that only says why it is empty."""
    text = (fig.layout.title.text or "").partition("<br>")[0]
    return re.sub(r"<[^>]+>", "", text).strip()

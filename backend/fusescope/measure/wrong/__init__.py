"""Implementations that are wrong on purpose, one per file: the check has to catch every one of them.

A file's docstring says in one sentence what is wrong, and it defines
    ON        {operator: case}, each tried
    ON_GPU    the same for a GPU, where other sizes show the fault; may be left out
    DTYPES    in which the fault can be told from rounding
    wrong     the implementation, with the operator's Python signature; it runs on CPU and GPU
and TIMED = True where only calls that are timed go wrong. selfcheck/catching.py finds and tries them.
"""

DECODER_LAYERS = {"batch": 2, "layers": 2, "width": 96, "heads": 2, "ffn": 160, "cached": 20}
"""Sizes of small decoder layers, to which a case adds whose they are and how weights are kept."""

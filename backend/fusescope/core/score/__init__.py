"""Score expressions: a score of attention as a small formula, parsed, and written as C++ or as calls of
torch. No torch is imported, and no text is ever executed.

    score + slope[h] * (k - q)                        ALiBi
    20 * tanh(score / 20)                             a soft-cap
    score + table[h, k - q + 512]                     T5's and other relative positions
    where(document[q] == document[k], score, -1e9)    documents

Variables: score (scale q kᵀ, floating point); b, h, q, k: batch entry, query head, and the positions of
query and key, where query row i has position i + S_k − S_q. Tensors: name[i] or name[i, j], float32 or
int32, indexed by integers; an index out of range reads the nearest element. Numbers. + - * /, and // and %
of integers by a whole number; < <= > >= == !=, and, or, not; where(condition, a, b), tanh, exp, log, sqrt,
abs, min, max.

Integers are exact, in indices, comparisons, // and %. Elsewhere they are floating point, like everything
else.
"""

from fusescope.core.score.nodes import Node, bounds_with
from fusescope.core.score.parse import Expression, Table, parse, tables_of

__all__ = ["Expression", "Node", "Table", "bounds_with", "parse", "tables_of"]

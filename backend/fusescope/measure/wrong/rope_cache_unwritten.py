"""Right results, but nothing is written to the caches that were given."""

from fusescope.ops.layer.rope_cache import rope_cache

ON = {
    "rope_cache": {
        "batch": 3,
        "tokens": 2,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 8,
        "seq_max": 40,
        "page": "16",
    }
}
DTYPES = ("float32", "bfloat16")


def wrong(q, k, v, cos_sin, positions, k_cache, v_cache, block_table):
    copies = k_cache.clone(), v_cache.clone()
    found = rope_cache(q, k, v, cos_sin, positions, *copies, block_table, impl="cpu" if q.is_cpu else "auto")
    return found[0], k_cache, v_cache

"""Right results, but no key and value of the new tokens is in the caches that were given."""

from fusescope.measure.wrong import DECODER_LAYERS
from fusescope.ops.layer.decoder_layers import decoder_layers

ON = {"decoder_layers": DECODER_LAYERS | {"layer": "llama", "batch": 3, "heads": 4, "kv_heads": 2}}
DTYPES = ("float16", "bfloat16")


def wrong(x, layers, k_caches, v_caches, cos_sin, places, **how):
    copies = ([cache.clone() for cache in caches] for caches in (k_caches, v_caches))
    impl = "cpu" if x.is_cpu else "auto"
    return decoder_layers(x, layers, *copies, cos_sin, places, **how, impl=impl)[0], k_caches, v_caches

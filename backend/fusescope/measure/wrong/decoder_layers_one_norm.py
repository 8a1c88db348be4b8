"""Both norms of a layer by the weight of its first."""

from fusescope.measure.wrong import DECODER_LAYERS
from fusescope.ops.layer.decoder_layers import decoder_layers

ON = {"decoder_layers": DECODER_LAYERS | {"layer": "qwen3"}}
DTYPES = ("float16", "bfloat16")


def wrong(x, layers, *given, **how):
    same = [layer._replace(norm2=layer.norm1) for layer in layers]
    return decoder_layers(x, same, *given, **how, impl="cpu" if x.is_cpu else "auto")

"""The options of a Transformer layer, shared by the verbs of the fusion search."""

from __future__ import annotations

from fusescope.core.machine import environment
from fusescope.core.records import DTYPES
from fusescope.search.scheme.setting import COMPILERS, Setting


def options(parser, device: bool = True) -> None:
    """--batch … --compiler; ``setting`` reads them."""
    group = parser.add_argument_group("the layer")
    group.add_argument("--batch", type=int, default=1, help="sequences (default 1)")
    group.add_argument("--seq", type=int, default=128, help="tokens a sequence (default 128)")
    group.add_argument("--heads", type=int, default=12, help="default 12")
    group.add_argument("--head-dim", type=int, default=64, help="default 64")
    group.add_argument(
        "--ffn", type=int, help="width between the two FFN products (default 4 * heads * head size)"
    )
    group.add_argument(
        "--mask", default="full", metavar="MASK", help="name[:key=value,…], or file:path.npy (default full)"
    )
    group.add_argument("--dtype", choices=DTYPES, help="default float16 on a GPU, float32 on the CPU")
    group.add_argument("--device", help="cuda:0 or cpu (default: the first GPU, else the CPU)")
    text = "; ".join(f"{name}: {what}" for name, what in COMPILERS.items())
    group.add_argument("--compiler", choices=COMPILERS, default="inductor", help=text)


def setting(args) -> Setting:
    """What the options ask for; ValueError for what is not supported."""
    device = "cuda:0" if args.device == "cuda" else args.device or environment.devices()[0]
    dtype = args.dtype or ("float32" if device == "cpu" else "float16")
    return Setting(
        args.batch, args.seq, args.heads, args.head_dim, args.ffn, args.mask, dtype, device, args.compiler
    )

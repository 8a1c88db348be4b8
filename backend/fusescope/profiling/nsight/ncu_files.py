"""The file of Nsight Compute's report: a table as text, packed or not, or NVIDIA's binary form."""

from __future__ import annotations

import gzip
import importlib
import zlib
from pathlib import Path

from fusescope.profiling.nsight.ncu_numbers import number
from fusescope.profiling.nsight.ncu_table import Launch, Report, parse

MAX_BYTES = 1 << 30


def read(path: Path) -> Report:
    """The report. ValueError: one sentence on why the file is none."""
    if path.suffix == ".ncu-rep" or _starts(path, b"NVR\0"):
        return _binary(path)
    return parse(text(path), path.name)


def _starts(path: Path, magic: bytes) -> bool:
    with open(path, "rb") as f:
        return f.read(len(magic)) == magic


def text(path: Path) -> str:
    """A table as text, unpacked where it is gzip. ValueError: damaged, or more than MAX_BYTES."""
    try:
        opener = gzip.open if _starts(path, b"\x1f\x8b") else open
        with opener(path, "rb") as f:
            raw = f.read(MAX_BYTES + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path.name} is a damaged or truncated gzip file ({error})") from None
    if len(raw) > MAX_BYTES:
        raise ValueError(f"{path.name} holds more than {MAX_BYTES >> 30} GiB of text; export fewer kernels")
    return raw.decode("utf-8-sig", errors="replace")


def _binary(path: Path) -> Report:
    """A .ncu-rep, through NVIDIA's own reader."""
    try:
        reader = importlib.import_module("ncu_report")
    except ModuleNotFoundError:
        raise ValueError(
            f"{path.name} is a binary report: pip install ncu-report reads it, or "
            f"ncu --import {path.name} --page raw --csv "
            "writes a table to import"
        ) from None
    launches = []
    context = reader.load_report(str(path))
    for n in range(context.num_ranges()):
        profiled = context.range_by_idx(n)
        for a in range(profiled.num_actions()):
            action = profiled.action_by_idx(a)
            values = {
                name: (m.value(), m.unit() or "")
                for name in action.metric_names()
                if (m := action.metric_by_name(name))
            }
            metrics = {
                ("", k): number(str(v), u) if isinstance(v, int | float) else (str(v), u)
                for k, (v, u) in values.items()
            }

            def triple(what: str, known: dict = metrics) -> tuple | None:
                found = [known.get(("", f"launch__{what}_dim_{axis}"), (None,))[0] for axis in "xyz"]
                return None if None in found else tuple(map(int, found))

            cc = [
                metrics.get(("", f"device__attribute_compute_capability_{p}"), (None,))[0]
                for p in ("major", "minor")
            ]
            text = None if None in cc else f"{int(cc[0])}.{int(cc[1])}"
            launches.append(
                Launch(
                    str(len(launches)),
                    action.name(),
                    triple("grid"),
                    triple("block"),
                    text,
                    None,
                    metrics=metrics,
                )
            )
    if not launches:
        raise ValueError(f"{path.name} holds no profiled kernel")
    return Report("report", launches)

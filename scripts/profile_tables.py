"""Tables for recorded profiles that hold only what a tool wrote (a GPU box without pyarrow collects it and no
more).

    .venv/bin/python scripts/profile_tables.py [FOLDER]       FOLDER: runs, default profiles/recorded

Reads artifacts/trace.json.gz, ncu.csv or nsys.sqlite of each run there and writes the same tables next to it
as an import of that file would; samples of telemetry that stand in its .json become a table, too. A .csv
whose tables are there is packed as .csv.gz: it is kept as what the tool said, and nothing reads it again.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "backend")]

from fusescope.jobs.profiled import eager_trace  # noqa: E402
from fusescope.profiling import table  # noqa: E402
from fusescope.profiling.chrome import importer  # noqa: E402
from fusescope.profiling.collect.telemetry import Telemetry  # noqa: E402
from fusescope.profiling.nsight import ncu, nsys  # noqa: E402


def main(folder: Path) -> int:
    for run in sorted(p.parent for p in folder.glob("*/run.json")):
        artifacts = run / "artifacts"
        done = [*_profile(artifacts), *_telemetry(artifacts), *_packed(artifacts)]
        if done:
            size = sum(f.stat().st_size for f in artifacts.iterdir())
            print(f"{run.name}: {', '.join(done)}; {size // 1024} KiB of artifacts")
    return 0


def _profile(artifacts: Path) -> list[str]:
    """Tables of the first file that has none; what was made, in words."""
    if not artifacts.is_dir() or (artifacts / "summary.json").is_file():
        return []

    def target(name: str) -> Path:
        return artifacts / name

    details = artifacts / "ncu-details.csv"
    if (artifacts / "trace.json.gz").is_file():
        eager = artifacts / "eager-trace.json.gz"
        captured = eager_trace.read(eager) if eager.is_file() else None
        rows = importer.load(artifacts / "trace.json.gz", target, captured=captured)["rows"]
    elif (artifacts / "ncu.csv").is_file():
        rows = ncu.load(artifacts / "ncu.csv", target, details=details if details.is_file() else None)["rows"]
    elif (artifacts / "nsys.sqlite").is_file():
        rows = nsys.load(artifacts / "nsys.sqlite", target, lambda share, text: None)["rows"]
    else:
        return []
    return [f"{count} {name}" for name, count in rows.items() if count]


def _packed(artifacts: Path) -> list[str]:
    """The tool's text files as .gz, where tables of them are there."""
    if not (artifacts / "summary.json").is_file():
        return []
    files = sorted(artifacts.glob("ncu*.csv"))
    for file in files:
        file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
        file.unlink()
    return [f"{file.name} packed" for file in files]


def _telemetry(artifacts: Path) -> list[str]:
    """Samples out of telemetry.json, where pyarrow was missing."""
    facts = artifacts / "telemetry.json"
    data = json.loads(facts.read_text()) if facts.is_file() else {}
    samples = data.pop("samples", None)
    if not samples or (artifacts / "telemetry.parquet").is_file():
        return []
    watched = Telemetry([], artifacts / "telemetry.parquet", data["source"], data["note"])
    watched.samples = samples
    table.write(watched.path, watched.columns())
    facts.write_text(json.dumps(data, indent=1))
    return [f"{len(samples)} samples of telemetry"]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "profiles" / "recorded"))

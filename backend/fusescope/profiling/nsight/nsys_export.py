"""The SQLite file that ``nsys export --type sqlite`` writes.

Tables are there only where there was data, and columns change between versions: both are looked up by name.
"""

from __future__ import annotations

import sqlite3

import numpy as np

from fusescope.profiling.table import ABSENT, Coded

SCHEMAS = (2, 3)  # major versions of the export's schema
_TIMES, _LONGEST = ("start", "end", "utcEpochNs"), 1 << 61
_OF_EVENTS = (
    "CUPTI_ACTIVITY_KIND_",
    "NVTX_EVENTS",
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "OSRT_API",
    "PROFILER_OVERHEAD",
)


class Export:
    """Tables by name, columns by name."""

    def __init__(self, con: sqlite3.Connection, name: str):
        self.con, self.name = con, name
        con.execute("PRAGMA trusted_schema = OFF")
        con.text_factory = lambda raw: raw.decode(errors="replace")
        self._counted: set[str] = set()
        self.left_out: dict[str, int] = {}  # table → rows without a time or an end, or with the end first
        kinds = con.execute("SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')")
        kinds = {str(n): kind == "view" or _virtual(str(sql)) for n, kind, sql in kinds}
        self.tables = {table for table, computed in kinds.items() if not computed}
        self._computed = kinds.keys() - self.tables
        if "META_DATA_EXPORT" not in self.tables:
            raise ValueError(
                f"{name} is SQLite but no export of Nsight Systems: it has no table META_DATA_EXPORT"
            )
        self.facts = {str(k): v for k, v in con.execute("SELECT name, value FROM META_DATA_EXPORT")}
        major = str(
            self.facts.get("EXPORT_SCHEMA_VERSION_MAJOR", self.facts.get("EXPORT_SCHEMA_VERSION", ""))
        ).split(".")[0]
        if not (major.isascii() and major.isdigit()) or int(major) not in SCHEMAS:
            known = " and ".join(map(str, SCHEMAS))
            raise ValueError(
                f"{name} has export schema {major or 'unknown'}; {known} can be read: "
                "export it with another nsys"
            )
        self._stored("StringIds")
        self.strings = (
            dict(con.execute("SELECT id, value FROM StringIds")) if "StringIds" in self.tables else {}
        )

    def read(self, table: str, *columns: str) -> dict[str, np.ndarray]:
        """``rows`` as int64 columns; ABSENT where there is no such column, table or value, or a time beyond
        73 years."""
        rows = self.rows(table, *columns)
        found = np.array([[ABSENT if not isinstance(v, int) else v for v in row] for row in rows], np.int64)
        found = found.reshape(len(rows), len(columns))
        for i in (i for i, c in enumerate(columns) if c in _TIMES):
            found[(found[:, i] < -_LONGEST) | (found[:, i] > _LONGEST), i] = ABSENT
        return {c: found[:, i].copy() for i, c in enumerate(columns)}

    def spans(self, table: str, *columns: str) -> dict[str, np.ndarray]:
        """``read`` of events that last; those without an end, or with one before the start, are left out."""
        found = self.read(table, *columns)
        sound = (found["end"] != ABSENT) & (found["end"] >= found["start"])
        if not sound.all():
            self._leave_out(table, int((~sound).sum()))
            found = {c: v[sound] for c, v in found.items()}
        return found

    def _stored(self, table: str) -> None:
        if table in self._computed:
            raise ValueError(
                f"{self.name}: {table} is a view or a virtual table, and nsys writes none: export it again"
            )

    def _leave_out(self, table: str, count: int) -> None:
        if count:
            self.left_out[table] = self.left_out.get(table, 0) + count

    def rows(self, table: str, *columns: str) -> list[tuple]:
        """The same in the file's order; of a table of events those that say when they began."""
        self._stored(table)
        if table not in self.tables:
            return []
        there = {row[1] for row in self.con.execute(f'PRAGMA table_info("{table}")')}
        chosen = ", ".join(f'"{c}"' if c in there else "NULL" for c in columns)
        if table.startswith(_OF_EVENTS) and "start" not in there:
            raise ValueError(f"{self.name}: its table {table} has no column start")
        sound = (
            f" WHERE typeof(start) = 'integer' AND start BETWEEN {-_LONGEST} AND {_LONGEST}"
            if "start" in there
            else ""
        )
        found = self.con.execute(f'SELECT {chosen} FROM "{table}"{sound}').fetchall()
        if sound and table not in self._counted:
            self._counted.add(table)
            whole = self.con.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
            self._leave_out(table, whole - len(found))
        return found

    def text(self, ids: np.ndarray) -> Coded:
        """The strings of ids."""
        distinct, codes = np.unique(ids, return_inverse=True)
        values = [str(self.strings.get(i, f"string {i}")) for i in distinct.tolist()]
        return Coded(np.where(ids == ABSENT, -1, codes.reshape(-1)).astype(np.int32), values)

    def gpus(self) -> list[dict]:
        """GPUs by the CUDA ids that kernels carry."""
        if "TARGET_INFO_GPU" not in self.tables:
            return []
        there = {row[1] for row in self.con.execute("PRAGMA table_info(TARGET_INFO_GPU)")}
        wanted = ("id", "name", "computeMajor", "computeMinor", "smCount")
        chosen = ", ".join(f'"{c}"' if c in there else "NULL" for c in wanted)
        pairs = self.read("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId")
        cuda = dict(zip(pairs["gpuId"].tolist(), pairs["cudaId"].tolist()))
        return [
            {
                "id": cuda.get(gpu, gpu),
                "name": name,
                "cc": f"{major}.{minor}" if isinstance(major, int) and isinstance(minor, int) else None,
                "sms": sms if isinstance(sms, int) and sms > 0 else None,
            }
            for gpu, name, major, minor, sms in self.con.execute(f"SELECT {chosen} FROM TARGET_INFO_GPU")
        ]


def _virtual(sql: str) -> bool:
    return sql.lstrip().upper().startswith("CREATE VIRTUAL")

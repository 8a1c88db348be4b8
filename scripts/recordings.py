"""The entries of recordings.toml: what each asks for, how much of it is recorded already, and the command
that records it."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "backend")]

VERBS = ("bench", "model", "traverse", "search")
"""What an entry may be: the name of its one key with the verb's words."""
PROCESSES = 3
"""Fresh processes of a bench or model, so that its intervals hold for a further one; they share the budget of
sampling. An entry may say another number."""
START_S = 60.0
"""Of a traverse's seconds those before its first scheme: processes, compiling, baselines, segments on their
own. 30 on a GPU with 16 cores alone, 60 to 90 where eight GPUs compile at one time."""


@dataclass(eq=False)
class Entry:
    """One entry; ``resume``: the folder of earlier recordings, ``device``: as of --device, ``on``: the name
    of the device whose runs count, any where empty."""

    table: dict
    resume: Path
    device: str
    on: str = ""

    @property
    def title(self) -> str:
        return self.table["title"]

    @property
    def verb(self) -> str:
        return next(v for v in VERBS if v in self.table)

    @property
    def turn(self) -> int:
        """Entries of a lower turn go first."""
        return self.table.get("turn", 0)

    @property
    def traverse(self) -> bool:
        """Whether it can be stopped at any time and go on after what is recorded."""
        return self.verb == "traverse"

    def named(self, words: str) -> bool:
        """Whether it holds one of the words that have commas between them; every entry does where there are
        none."""
        name = f"{self.title} {self.verb} {self.table[self.verb][0]}".lower()
        return not words or any(word.lower() in name for word in words.split(","))

    @cached_property
    def spec(self) -> dict:
        """The job that the entry's words ask for, as the verb itself reads them."""
        from fusescope import cli

        typed = [*self.table[self.verb], "--device", self.device, *self._masks()]
        part, parser = cli.load(self.verb), argparse.ArgumentParser()
        part.arguments(parser, typed)
        spec = part.specify(parser.parse_args(typed))
        return spec if isinstance(spec, dict) else spec.to_json()

    @cached_property
    def codes(self) -> list[str]:
        """The schemes of a sweep in the order of measuring."""
        from fusescope.search.sweeps import exhaustive

        return exhaustive.codes(self.spec["ranges"], self.spec["limit"], self.spec["seed"])

    @cached_property
    def before(self) -> list[Path]:
        """The sessions of a sweep that are recorded. What counts is the setting, not the title."""
        from fusescope.search.scheme.setting import of_spec
        from fusescope.store import folder

        found = sorted(self.resume.glob("*-traverse-*")) if self.traverse else []
        return [path for path in found if of_spec(folder.read(path).spec) == of_spec(self.spec)]

    @cached_property
    def due(self) -> list[int]:
        """The positions in ``codes`` of the schemes that no session has settled."""
        from fusescope.search import sessions
        from fusescope.store import folder

        there = {impl for path in self.before for impl in sessions.settled(folder.records(path))}
        return [i for i, code in enumerate(self.codes) if code not in there]

    @property
    def share(self) -> float:
        """The share of it that is still to be recorded, as far as a traverse is concerned; 1.0 of anything
        else."""
        return len(self.due) / len(self.codes) if self.traverse else 1.0

    @property
    def whole(self) -> bool:
        """Whether all of it is recorded: every scheme of a traverse, a run of its title of anything else."""
        if self.traverse:
            return not self.due
        for path in self.resume.glob(f"*-{self.verb}-*"):
            title = (
                json.loads((path / "notes.json").read_text())["title"]
                if (path / "notes.json").is_file()
                else ""
            )
            run = json.loads((path / "run.json").read_text())
            there = not self.on or self.on == run.get("environment", {}).get("device_name")
            if title == self.title and run["status"] == "done" and there:
                return True
        return False

    def seconds(self, gpus: int = 1) -> float:
        """About how long it takes on so many H200s; of a traverse, what is due of it. A case stays on one."""
        alone = self.table["seconds"]
        if self.traverse:
            start = min(START_S, alone / 2)
            return start + (alone - start) * self.share / gpus
        if gpus == 1:
            return alone  # a plan for one GPU can be made where there is none
        return alone / (gpus if self.verb == "search" else min(gpus, len(self.spec["cases"])))

    def words(self, left: float, case_budget_s: float, gpus: int = 1) -> list[str]:
        """Its command, which has ``left`` seconds, goes on after what is recorded, and shares its work among
        so many GPUs."""
        found = [
            sys.executable,
            "-m",
            "fusescope",
            self.verb,
            *self.table[self.verb],
            "--device",
            self.device,
        ]
        found += ["--json", "--title", self.title, *self._masks()]
        if self.verb in ("bench", "model"):
            count = self.table.get("processes", PROCESSES)
            budget = self.table.get("case_budget_s", case_budget_s)
            found += ["--budget", f"{budget / count:g}", "--processes", str(count)]
        if self.traverse:
            found += ["--fresh", "--deadline", f"{left:.0f}"]
            found += ["--after", ",".join(folder.name for folder in self.before)] if self.before else []
        return found + (["--cluster", f"local:{gpus}"] if gpus > 1 else [])

    def _masks(self) -> list[str]:
        return [w for mask in self.table.get("masks", ()) for w in ("--mask", mask)]


def entries(resume: Path, device: str, only: str = "", missing: bool = False, on: str = "") -> list[Entry]:
    """Those that hold one of the words of ``only`` and are for this device or for any, without traverses of
    which nothing is left; with ``missing`` without all that is whole in the folder ``resume``, measured on a
    device of the name ``on``. In the order of recording: by turn, the longest first, so that nothing long is
    left last."""
    table = tomllib.loads((ROOT / "scripts" / "recordings.toml").read_text())["run"]
    found = [e for t in table if (e := Entry(t, resume, device, on)).named(only)]
    found = [e for e in found if device == e.table.get("device", device)]
    found = [e for e in found if not (e.whole if missing or e.traverse else False)]
    return sorted(found, key=lambda e: (e.turn, -e.table["seconds"]))

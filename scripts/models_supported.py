"""Writes docs/models-supported.md from a tiny random model of every class of the installed transformers.

python3 scripts/models_supported.py            rewrites the document, in two minutes on one core
python3 scripts/models_supported.py --check    says what differs from it; exit code 1
"""

from __future__ import annotations

import difflib
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "backend")]

import torch  # noqa: E402
import transformers  # noqa: E402

from fusescope import kernels  # noqa: E402
from tests.models.architectures import supported, tiny, verdict  # noqa: E402


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(100)
    torch.set_num_threads(1)
    kernels.load("cpu")
    verdicts = {}
    for name in tiny.classes():
        verdicts[name] = verdict.of(name)
        if verdicts[name].state in verdict.WRONG:
            sys.exit(f"{name}: {verdicts[name].state}, {verdicts[name].why}")
    new, old = supported.text(verdicts), supported.FILE.read_text() if supported.FILE.exists() else ""
    if not arguments:
        supported.FILE.write_text(new)
    elif new != old:
        sys.stderr.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), n=0))
    return int(bool(arguments) and new != old)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

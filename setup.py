"""Copies the kernel sources (cuda/) into the built package; an editable install reads them where they are."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithKernelSources(build_py):
    def run(self):
        shutil.rmtree(
            self.build_lib, ignore_errors=True
        )  # what an earlier build left is not part of this one
        super().run()
        if not self.editable_mode:
            kernels = Path(self.build_lib, "fusescope", "cuda")
            shutil.copytree("cuda", kernels, ignore=shutil.ignore_patterns("*.md"), dirs_exist_ok=True)


setup(cmdclass={"build_py": WithKernelSources})

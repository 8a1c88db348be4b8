"""Processes of other users, for tests of what users of one machine can do to each other. Only root can start
them; elsewhere the tests skip with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from fusescope.core import paths

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="other users' processes can be started by root only")
MALLORY, ALICE, BOB = 54321, 54322, 54323
"""User numbers that no account of a usual machine has."""


def run_as(user: int, code: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    """Run Python code as another user, who can import the package; gives what it printed."""
    return subprocess.run(_command(user, code), **_options(env), capture_output=True, timeout=60)


def start_as(user: int, code: str, env: dict[str, str] | None = None) -> subprocess.Popen:
    """Start Python code as another user; it is told to go on by a line on its standard input."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(_command(user, code), **_options(env), **pipes)


def _command(user: int, code: str) -> list[str]:
    # What a package of root's may need is imported while root still: a checkout may be unreadable to others.
    first = f"""
        import getpass, json, os, socket, sys
        from fusescope.core.machine import runtime
        from fusescope.jobs.process import gpu_lock
        os.setgroups([]); os.setgid({user}); os.setuid({user}); os.umask(0o022)
    """
    return [sys.executable, "-c", textwrap.dedent(first) + textwrap.dedent(code)]


def _options(env: dict[str, str] | None) -> dict:
    path = {"PYTHONPATH": paths.python_path()}
    return {"text": True, "cwd": "/", "env": os.environ | path | (env or {})}

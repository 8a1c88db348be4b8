#!/usr/bin/env bash
# Makes .venv/ ready: names what the system lacks (and installs it where it may: root with apt-get), then installs the pinned
# requirements once. Called by make; usage: setup.sh run|test
#   PYTHON=/path/python3   the interpreter to use (default: the newest of python3.14 … python3.11, python3 on PATH)
#   TORCH=reuse            keep the torch (>= 2.11) of that interpreter instead of installing the pinned one
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=$1

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

find_python() {
  if [ -n "${PYTHON:-}" ]; then command -v "$PYTHON" || die "PYTHON=$PYTHON is not there"; return; fi
  for p in python3 python3.14 python3.13 python3.12 python3.11; do
    command -v "$p" >/dev/null && "$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' && { command -v "$p"; return; }
  done
  die "Python 3.11 or newer is needed; install it (Debian, Ubuntu: apt-get install python3 python3-venv python3-dev) or give PYTHON=/path/to/python3"
}

# What the system must have: "package|test|what for". Chromium is wanted by the browser tests only.
python=$(find_python)
# which interpreter that is, by whichever of its names it was found: a shim and what it starts are one
interpreter=$("$python" -c 'import sys; print(sys.version.split()[0], sys.base_prefix)')
missing=()
need() { eval "$2" >/dev/null 2>&1 || missing+=("$1|$3"); }
need python3-venv "$python -c 'import venv, ensurepip'" "virtual environments"
need python3-dev "$python -c 'import os, sysconfig; assert os.path.exists(sysconfig.get_paths()[\"include\"] + \"/Python.h\")'" "Python.h, which torch.compile needs"
need g++ "command -v g++" "the C++ compiler of the extension"
need git "command -v git" "the commit in every run's fingerprint"
if [ "$purpose" = test ]; then
  need chromium "command -v chromium || command -v chromium-browser || command -v google-chrome" "the browser journeys"
fi
if [ ${#missing[@]} -gt 0 ]; then
  packages=(); for m in "${missing[@]}"; do packages+=("${m%%|*}"); say "missing: ${m%%|*} (${m#*|})"; done
  line="apt-get install -y --no-install-recommends ${packages[*]}"
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing: $line"
    log=$(mktemp)
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive $line; } >"$log" 2>&1 || { tail -5 "$log" >&2; hard=1; }
  else
    say "install with: sudo $line"; hard=1
  fi
  if [ "${hard:-0}" = 1 ] && [ "${packages[*]}" != chromium ]; then die "cannot go on without: ${packages[*]}"; fi
fi

reused=""
if [ "${TORCH:-}" = reuse ]; then
  reused=$("$python" - <<'P'
import importlib.metadata as m, importlib.util, os, sys
spec = importlib.util.find_spec("torch")
if spec is None:
    sys.exit(f"setup: {sys.executable} has no torch to reuse; leave TORCH=reuse out to install the pinned one")
version = m.version("torch").split("+")[0]
if tuple(int(x) for x in version.split(".")[:2]) < (2, 11):
    sys.exit(f"setup: torch {version} of {sys.executable} is older than 2.11; leave TORCH=reuse out to install the pinned one")
print(os.path.dirname(os.path.dirname(spec.origin)))
P
) || exit 1
elif [ -n "${TORCH:-}" ]; then die "TORCH is empty or 'reuse', not '$TORCH'"; fi

# What a finished environment was made from; one made for the tests serves the app too.
made_from() { (cat requirements.txt pyproject.toml; [ "$1" = test ] && cat requirements-dev.txt; echo "$interpreter $reused $PWD") | sha256sum | cut -d' ' -f1; }
ready() { [ -f ".venv/.ready-$1" ] && [ "$(cat ".venv/.ready-$1")" = "$(made_from "$1")" ]; }
ready "$purpose" && exit 0
# another version of Python, or another choice of torch, wants a fresh environment; so does one that has moved
base=$(echo "$interpreter $reused $PWD" | sha256sum | cut -d' ' -f1)
if [ -d .venv ] && [ "$(cat .venv/.base 2>/dev/null)" != "$base" ]; then rm -rf .venv; fi
if [ ! -d .venv ]; then say "making .venv with $("$python" -V)"; "$python" -m venv .venv; fi
echo "$base" > .venv/.base
if [ -n "$reused" ]; then
  site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  echo "$reused" > "$site/reused_torch.pth"
fi
wanted=requirements.txt; [ "$purpose" = test ] && wanted=requirements-dev.txt
say "installing $wanted (a minute or two the first time)"
list=$(mktemp)
cat requirements.txt > "$list"; [ "$purpose" = test ] && grep -v '^-r' requirements-dev.txt >> "$list"
if [ -n "$reused" ]; then sed -i '/^torch==/d' "$list"; fi
.venv/bin/python -m pip install -q --disable-pip-version-check -r "$list"
.venv/bin/python -m pip install -q --disable-pip-version-check --no-deps -e .
made_from run > .venv/.ready-run
if [ "$purpose" = test ]; then made_from test > .venv/.ready-test; fi

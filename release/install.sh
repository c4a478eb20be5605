#!/bin/sh
# Install veen from this directory, without a network: ./install.sh DIRECTORY
# A virtual environment is made in DIRECTORY; PYTHON names the interpreter to make it with.
# Before anything is installed, every file is verified against SHA256SUMS. Compare the hash of
# SHA256SUMS, which is printed, with that of whoever gathered the files.
set -eu

target=${1:?usage: install.sh DIRECTORY}
case $target in /*) ;; *) target=$PWD/$target ;; esac
python=${PYTHON:-python3}
cd "$(dirname "$0")"

echo "sha256 of SHA256SUMS: $(sha256sum SHA256SUMS | cut -d' ' -f1)"
if ! sha256sum --quiet --strict --check SHA256SUMS; then
  echo "install.sh: a file is damaged or absent, nothing was installed: copy the directory again" >&2
  exit 3
fi

expected="@PYTHON@ @PLATFORM@"
actual=$("$python" -c 'import sys, sysconfig as s
print("%d.%d" % sys.version_info[:2], s.get_platform())')
if [ "$actual" != "$expected" ]; then
  echo "install.sh: expected Python and platform $expected, got $actual from $python:" \
    "set PYTHON, or run make wheelhouse on a machine like this one" >&2
  exit 1
fi

"$python" -m venv "$target"
"$target/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps \
  --find-links wheels --require-hashes --requirement requirements.txt
"$target/bin/veen" version

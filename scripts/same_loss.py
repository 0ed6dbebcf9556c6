"""Show that a change moves no number: train a few steps at a commit and in the working tree, and compare bit for bit.

    python scripts/same_loss.py [COMMIT]        # HEAD where none is given

Two schedules of the demo's model on the text of this repository, one thread. Prints the first line of metrics that
differs, and ends with 1, where one does.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXT = ("README.md", "LICENSE")
SCHEDULES = ("uniform", "prism")
TOKENS = 40 * 1024
COMPARED = ("step", "tokens", "loss", "lr", "grad_norm", "val_loss")


def losses(source: Path, text: list[Path], schedule: str, out: Path) -> list[dict[str, float]]:
    """The metrics of a run by the package in `source`."""
    command = [sys.executable, "-m", "prism_transformer", "train", "--recipe", "demo", "--schedule", schedule]
    command += ["--tokenizer", "bytes", "--tokens", str(TOKENS), "--log-every", "1", "--evaluations", "2"]
    command += ["--device", "cpu", "--threads", "1", "--out", str(out), "--data", *map(str, text)]
    environment = os.environ | {"PYTHONPATH": str(source)}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key in COMPARED} for line in lines]


def main() -> int:
    commit = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    with tempfile.TemporaryDirectory() as folder:
        old, place = Path(folder) / "old", Path(folder)
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", old, commit], check=True)
        try:
            text = [old / name for name in TEXT]  # the same for both
            for schedule in SCHEDULES:
                before = losses(old / "src", text, schedule, place / f"before-{schedule}")
                after = losses(ROOT / "src", text, schedule, place / f"after-{schedule}")
                if before != after:
                    pairs = [pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]]
                    what = pairs[0] if pairs else (f"{len(before)} lines of metrics", f"{len(after)} lines")
                    print(f"{schedule}: not the same as at {commit}; first difference:", *what, sep="\n  ")
                    return 1
                print(f"{schedule}: {len(before)} lines of metrics are the same as at {commit}, bit for bit")
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", old], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The commands of docs/training-at-scale.md: the sbatch file runs, and every option in it exists."""

import os
import re
import shlex
import stat
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from prism_transformer.cli.recipes import TextOptions
from prism_transformer.cli.train import Train
from prism_transformer.training.recipe import DeviceSettings, ModelSettings, OptimizerSettings, TrainingSettings

PAGE = Path(__file__).parents[2] / "docs" / "training-at-scale.md"
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def prism_options(text: str) -> set[str]:
    """The options after `prism train`, in the commands of a shell text."""
    joined = text.replace("\\\n", " ")
    found = re.findall(r"(?:prism|prism_transformer) train (.*)|TRAIN=\"train (.*)\"", joined)
    return {word for pair in found for word in shlex.split(pair[0] or pair[1]) if word.startswith("--")}


def test_every_option_of_prism_train_in_the_page_exists():
    sections = (ModelSettings, TextOptions, OptimizerSettings, TrainingSettings, DeviceSettings, Train)
    names = {each.name for section in sections for each in fields(section)} | {"data"}
    used = {option for block in BLOCKS for option in prism_options(block)}
    assert {"--recipe", "--out", "--resume", "--allow", "--verify", "--dry-run", "--ranks", "--device-memory"} <= used
    assert used <= {f"--{name.replace('_', '-')}" for name in names}


def fake(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="the sbatch file is for bash")
@pytest.mark.parametrize(
    ("dry_run", "code", "restarts", "calls", "ends_with"),
    [
        (0, 0, 0, ["prism", "srun"], 0),  # finished
        (0, 1, 0, ["prism", "srun", "requeue"], 1),  # stopped: into the queue again
        (0, 1, 50, ["prism", "srun"], 1),  # too often
        (2, 0, 0, ["prism"], 2),  # wrong settings
    ],
)
def test_the_sbatch_file(tmp_path, dry_run, code, restarts, calls, ends_with):
    """Run by bash with stand-ins for the cluster's commands, which note how they are called."""
    (block,) = (block for block in BLOCKS if "#SBATCH" in block)
    (tmp_path / "train.sbatch").write_text(block)
    note = f'echo "$(basename $0) $@" >> {tmp_path}/calls'
    fake(tmp_path, "prism", f"{note}; exit {dry_run}")
    fake(tmp_path, "srun", f"{note}; exit {code}")
    fake(tmp_path, "scontrol", f'{note}; [ "$1" = show ] && printf "node7\\nnode8\\n"; exit 0')
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_NNODES": "4",
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_NODELIST": "node[7-8]",
        "SLURM_RESTART_COUNT": str(restarts),
    }
    done = subprocess.run(["bash", str(tmp_path / "train.sbatch")], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (ends_with, "")
    lines = (tmp_path / "calls").read_text().splitlines()
    seen = ["requeue" if "requeue 77" in line else line.split()[0] for line in lines if "show hostnames" not in line]
    assert seen == calls
    assert "train --recipe large" in lines[0] and "--dry-run --ranks 32 --device-memory 80" in lines[0]
    if "srun" in calls:
        (started,) = (line for line in lines if line.startswith("srun"))
        assert (
            f"--rdzv-endpoint=node7:29500 --rdzv-id=77.{restarts} -m prism_transformer train --recipe large" in started
        )

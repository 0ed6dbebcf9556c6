"""Load what was exported as its reader will: in a new process, without this package and without network."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError

# Runs in the other process. The arguments: the folder, and the ids of the probe as the tokenizer of the run gives them.
_LOAD_HUGGING_FACE = """
import json, sys
sys.modules["prism_transformer"] = None
from pathlib import Path
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging
logging.set_verbosity_error()
logging.disable_progress_bar()
folder = Path(sys.argv[1])
probe = json.loads(sys.argv[2])
golden = load_file(folder / "golden.safetensors")
model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32).eval()
with torch.no_grad():
    logits = model(golden["ids"], use_cache=False).logits[0]
    hidden = AutoModel.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32).eval()(golden["ids"])
    again = model.lm_head(hidden.last_hidden_state)[0]
expected = golden["logits"]
size = expected.shape[-1]
found = {
    "logits": max((got[:, :size] - expected).abs().max().item() for got in (logits, again)),
    "heads": [layer.self_attn.n_heads for layer in model.model.layers],
    "ids": None,
}
if probe["ids"] is not None:
    found["ids"] = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)(probe["text"]).input_ids
print(json.dumps(found))
"""

_LOAD_ONNX = """
import json, sys
sys.modules["prism_transformer"] = sys.modules["torch"] = None
from pathlib import Path
import numpy as np
import onnxruntime
from safetensors.numpy import load_file
folder = Path(sys.argv[1])
golden = load_file(folder / "golden.safetensors")
ids, expected = golden["ids"], golden["logits"]
session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
shapes = {each.name: each.shape for each in session.get_inputs()}
outputs = [each.name for each in session.get_outputs()]
empty = {n: np.zeros((1, s[1], 0, s[3]), np.float32) for n, s in shapes.items() if n.startswith("past_key_values.")}

def step(tokens, past, seen):
    feed = {"input_ids": tokens, "attention_mask": np.ones((1, seen + tokens.shape[1]), np.int64), **past}
    out = dict(zip(outputs, session.run(None, feed)))
    kept = {name.replace("present.", "past_key_values."): value for name, value in out.items() if name != "logits"}
    return out["logits"][0], kept

whole, _ = step(ids, empty, 0)
rows, past = [], empty
for start, end in [(0, 5), *((i, i + 1) for i in range(5, ids.shape[1]))]:
    row, past = step(ids[:, start:end], past, start)
    rows.append(row)
size = expected.shape[-1]
found = {
    "prefill": float(np.abs(whole[:, :size] - expected).max()),
    "decode": float(np.abs(np.concatenate(rows)[:, :size] - expected).max()),
}
print(json.dumps(found))
"""


def load_hugging_face(folder: Path, out: Path, *, text: str, ids: Sequence[int] | None) -> dict[str, object]:
    """What a fresh process finds: `logits` (largest difference to the golden ones), `heads` as built, `ids` of `text`.

    `ids` is what the tokenizer must give; None where the folder has no tokenizer. Raises InputError where it fails,
    naming `out`, which `folder` is to become.
    """
    probe = json.dumps({"text": text, "ids": None if ids is None else list(ids)})
    return _run(_LOAD_HUGGING_FACE, folder, out, probe)


def load_onnx(folder: Path, out: Path) -> dict[str, object]:
    """The largest difference to the golden logits, of the whole prompt (`prefill`) and token by token (`decode`)."""
    return _run(_LOAD_ONNX, folder, out)


def _run(script: str, folder: Path, out: Path, *arguments: str) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {"HF_HOME": home, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        command = [sys.executable, "-c", script, str(folder.resolve()), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=home, stdin=subprocess.DEVNULL
        )
    if done.returncode:
        last = (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[-1]
        raise InputError(f"{out}: what was exported does not load in a fresh process: {last}; nothing was written")
    found: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    return found

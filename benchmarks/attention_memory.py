"""How long does attention distance take at the paper's small scale, and in how much memory?

    python benchmarks/attention_memory.py [--sequences 8] [--context 1024] [--threads 2]

A freshly initialised model (12 layers, d_model 768, the prism schedule) on random ids: neither time nor memory depends
on what it has learned. Peak memory is the resident set of a process that does nothing else.
"""

import argparse
import json
import time
from types import SimpleNamespace

import numpy as np
import torch

from prism_transformer.benchmark.memory import resident_peak
from prism_transformer.data.corpus import TokenStream
from prism_transformer.evaluation.measured_attention import measure_attention
from prism_transformer.model.modeling_prism import PrismForCausalLM
from prism_transformer.training.recipe import ModelSettings


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--d-model", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12, help="base heads")
    parser.add_argument("--schedule", default="prism")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--vocab-size", type=int, default=50257)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--documents", choices=["packed", "apart"], default="packed")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    settings = ModelSettings(
        layers=options.layers,
        d_model=options.d_model,
        heads=options.heads,
        schedule=options.schedule,
        context=options.context,
    )
    model = PrismForCausalLM(settings.config(options.vocab_size)).eval()
    ids = np.random.default_rng(0).integers(1, options.vocab_size, options.sequences * options.context, dtype=np.uint16)
    ids[:: options.context // 4] = 0  # four documents a window
    tokenizer = SimpleNamespace(vocab_size=options.vocab_size, end_of_text=0)
    stream = TokenStream(where="random", parts=[ids], names=["random"], tokenizer=tokenizer)
    before, cpu_before = time.perf_counter(), time.process_time()
    measure_attention(model, stream, context=options.context, sequences=options.sequences, documents=options.documents)
    seconds, cpu_seconds = time.perf_counter() - before, time.process_time() - cpu_before
    found = {"seconds": round(seconds, 1), "cpu_seconds": round(cpu_seconds, 1)}
    print(json.dumps({**found, "peak_gb": round((resident_peak() or 0) / 1e9, 2), **vars(options)}))


if __name__ == "__main__":
    main()

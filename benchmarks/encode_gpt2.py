"""How fast does real text become GPT-2's tokens, against tiktoken alone in one thread?

    python benchmarks/encode_gpt2.py PATH... [--megabytes 20] [--rounds 5]

Two sides in turns, in one process, on the same documents: tiktoken's own `encode_ordinary_batch` with one thread, which
gives lists, and `encode_batch` of this package on all cores, which gives arrays. The ids must be equal. Wall seconds
say how fast it is, CPU seconds what a core does of it. Then the whole of `prism data prepare`: reading, splits, shards.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from _timing import describe_machine, show

from prism_transformer.benchmark.timing import CLOCKS, interleave, speed_ratio, turn_of
from prism_transformer.data import DataSettings, prepare
from prism_transformer.data.reading import Tally
from prism_transformer.data.sources import find_files
from prism_transformer.data.tokenizer import Gpt2Tokenizer
from prism_transformer.machine import available_cores


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("paths", nargs="+", help="text, as `prism data prepare` takes it")
    parser.add_argument("--megabytes", type=float, default=20.0, help="of text from its beginning, for the two sides")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(describe_machine(), f"{available_cores()} core(s)", sep="\n")
    texts = first_documents(options.paths, options.megabytes * 1e6)
    tokenizer = Gpt2Tokenizer()
    alone = tokenizer._encoding.encode_ordinary_batch(texts, num_threads=1)
    here = tokenizer.encode_batch(texts)
    assert all(a == b.tolist() for a, b in zip(alone, here, strict=True)), "the ids differ"
    tokens = sum(map(len, here))
    show("text", f"{len(texts):,} documents, {tokens:,} tokens, equal ids")
    works = [
        lambda: tokenizer._encoding.encode_ordinary_batch(texts, num_threads=1),
        lambda: tokenizer.encode_batch(texts),
    ]
    for clock in CLOCKS:
        times = interleave([turn_of(work, clock=clock) for work in works], rounds=options.rounds, repeats=1)
        for name, seconds in zip(("tiktoken, one thread", "here, all cores"), times, strict=True):
            show(f"{name}, M tokens a {clock} second", f"{tokens / np.median(seconds) / 1e6:.2f}")
        show(f"speed relative to tiktoken's thread, {clock} seconds", speed_ratio(*times))
    prepared(options.paths)


def first_documents(paths: list[str], size: float) -> list[str]:
    texts: list[str] = []
    with tempfile.TemporaryDirectory() as spool:
        for document in find_files(paths, text_field="text", spool=Path(spool)).documents(Tally()):
            texts.append("".join(document.blocks))
            size -= len(texts[-1].encode())
            if size < 0:
                break
    return texts


def prepared(paths: list[str]) -> None:
    """All of the text, from its files to shards."""
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), time.process_time()
        settings = DataSettings(paths=tuple(paths), tokenizer="gpt2")
        corpus = prepare(settings, Path(folder) / "shards", say=lambda sentence: None)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert corpus.manifest is not None
    tokens = sum(split.tokens for split in corpus.manifest.splits.values())
    rates = f"{tokens / wall / 1e6:.2f} M a wall second, {tokens / cpu / 1e6:.2f} M a CPU second"
    show("prism data prepare", f"{tokens:,} tokens, {rates}")


if __name__ == "__main__":
    main()

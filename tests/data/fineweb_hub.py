"""A folder in the layout of FineWeb on the hub, and a process that prepares it, for the tests that kill one."""

import sys
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet

from prism_transformer.data import fineweb

FILES, ROWS = 3, 100
SETTINGS = {"validation_share": 0.1, "test_share": 0.05}


def texts() -> list[str]:
    """In order; every twentieth is blank, and one is there twice."""
    found = [f"document {i}: " + " ".join(f"word{i * k % 97}" for k in range(i % 40 + 1)) for i in range(FILES * ROWS)]
    found[7] = found[211]
    return [" \n" if i % 20 == 3 else text for i, text in enumerate(found)]


def make_hub(root: Path) -> Path:
    """Three parquet files of the subset sample-10BT, with columns beside the text, as FineWeb has them."""
    folder = root / "sample" / "10BT"
    folder.mkdir(parents=True)
    all_texts = texts()
    for number in range(FILES):
        rows = all_texts[number * ROWS : (number + 1) * ROWS]
        table = pyarrow.table({"text": rows, "id": [f"<urn:{i}>" for i in range(ROWS)], "token_count": [1] * ROWS})
        pyarrow.parquet.write_table(table, folder / f"{number:03d}_00000.parquet", row_group_size=30)
    return root


def make_small_units() -> None:
    fineweb.UNIT_TOKENS, fineweb.BATCH_CHARACTERS = 1500, 1500


def prepare_slowly(hub: str, out: str, tokens: str) -> None:
    """As the command does, with time between batches to be killed in."""
    make_small_units()
    batches = fineweb._batches

    def slow(*arguments):
        for batch in batches(*arguments):
            time.sleep(0.05)
            yield batch

    fineweb._batches = slow
    settings = fineweb.FineWebSettings(tokens=tokens, source=hub, **SETTINGS)
    fineweb.prepare_fineweb(settings, Path(out), say=lambda sentence: None)


if __name__ == "__main__":
    prepare_slowly(*sys.argv[1:])

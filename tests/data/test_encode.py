"""The sample that a tokenizer is trained on."""

from pathlib import Path

import numpy as np

from prism_transformer.data import encode
from prism_transformer.data.encode import Survey, training_sample
from prism_transformer.data.reading import Document


class Three:
    """A long document first in the files and first by its hash, and two short ones behind it."""

    origin = "three documents"
    texts = ("a" * 90, "b" * 30, "c" * 30)

    def documents(self, tally):
        return (Document(blocks=iter([text])) for text in self.texts)


def test_the_sample_is_cut_in_the_order_of_the_hashes_and_not_of_the_files(monkeypatch, tmp_path: Path) -> None:
    """By hash: b, a, c. 100 bytes hold all of b, 70 of a, and nothing of c."""
    monkeypatch.setattr(encode, "SAMPLE_BYTES", 100)
    sizes = np.array([90, 30, 30])
    keys = np.array([2, 1, 3], dtype=np.uint64)
    found = Survey(numbers=np.arange(3), keys=keys, sizes=sizes, empty=0, replaced=0)
    edges = np.stack([sizes, sizes], axis=1)

    sample = "".join(training_sample(Three(), found, edges))

    assert sample.count("b") == 30  # the long document has not used up its share
    assert sample.count("a") >= 70 and "c" not in sample

"""Which text is for training, for validation and for the test.

Documents of the same text (or of the same group) form one unit. The units are laid end to end, those longer than half
a held-out split first, each kind in the order of its hashes. The first bytes are the training split, the last ones
validation and test. A unit across an edge goes whole to the side that holds its middle; only a long one is cut there,
each of its documents at the same fraction. So

- exact duplicates fall on one side, being one unit, and copies of a document that is cut are cut at the same place;
- a held-out split has between half and one and a half times its share of the text, however few or uneven the documents;
- a held-out split is many shorter documents where there are such, and a long one is cut only where there are not;
- a single document gives its last parts.
"""

import hashlib

import numpy as np
import numpy.typing as npt


def new_key() -> hashlib.blake2b:
    """Takes the UTF-8 of a text, block by block; then `key_of` gives its key."""
    return hashlib.blake2b(digest_size=8)


def key_of(digest: hashlib.blake2b) -> int:
    """64 bits of the hash of a text, on which its place in the order depends."""
    return int.from_bytes(digest.digest(), "big")


def text_key(text: str) -> int:
    """`key_of` a text that is there as a whole."""
    digest = new_key()
    digest.update(text.encode())
    return key_of(digest)


def split_edges(
    keys: npt.NDArray[np.uint64],
    sizes: npt.NDArray[np.int64],
    *,
    validation_share: float,
    test_share: float,
) -> npt.NDArray[np.int64]:
    """[documents, 2] the bytes of each document at which its training part and its validation part end.

    keys: [documents] of its unit; sizes: [documents] bytes. A whole document of the training split has (size, size), of
    validation (0, size), of the test (0, 0).
    """
    unit_keys, unit_of = np.unique(keys, return_inverse=True)
    unit_sizes = np.bincount(unit_of, weights=sizes)
    total = float(unit_sizes.sum())
    long = unit_sizes > total * min(share for share in (validation_share, test_share, 1.0) if share > 0) / 2
    order = np.lexsort((unit_keys, ~long))
    starts = np.empty_like(unit_sizes)
    starts[order] = np.cumsum(unit_sizes[order]) - unit_sizes[order]
    edges = np.empty((len(keys), 2), dtype=np.int64)
    for column, held_out in enumerate((validation_share + test_share, test_share)):
        before = np.clip((total * (1 - held_out) - starts) / np.maximum(unit_sizes, 1), 0, 1)
        part = np.where(long, before, before >= 0.5)
        edges[:, column] = np.floor(part[unit_of] * sizes)
    return edges

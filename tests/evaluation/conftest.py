"""Small evaluation sets in both layouts, and the real ones where they are."""

import json
from pathlib import Path

import pytest

REAL = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    if not REAL.is_dir():
        pytest.skip(f"the evaluation sets are not at {REAL}")
    return REAL


def piqa_items(count: int) -> list[dict[str, object]]:
    return [
        {
            "goal": f"How to feed cat number {k}?",
            "sol1": "Give the cat fish.",
            "sol2": "Give the fish the cat.",
            "label": k % 2,
        }
        for k in range(count)
    ]


@pytest.fixture(scope="session")
def plain_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few items of every paper task as plain files."""
    folder = tmp_path_factory.mktemp("plain")
    sentences = [
        {"sentence_good": f"The {a} sees the {b}.", "sentence_bad": f"The {a} see the {b}."}
        for a in ("cat", "dog")
        for b in ("bird", "fish", "horse")
    ]
    sets = {
        "piqa_validation": piqa_items(10),
        "hellaswag_validation": [
            {"query": "Pets: A cat", "endings": ["sees a bird.", "is a bird.", "flies.", "reads."], "label": 0},
            {"query": "Pets: A dog", "endings": ["reads.", "sees a cat.", "flies.", "is a fish."], "label": 1},
        ],
        "arc_easy_test": [
            {"question": "What does a fish do?", "choices": ["swim", "fly", "read"], "label": 0},
            {"question": "What does a bird do?", "choices": ["swim", "dig", "read", "fly"], "label": 3},
        ],
        "winogrande_xl_validation": [
            {"sentence": "The cat saw the dog because _ was big.", "option1": "cat", "option2": "dog", "answer": "2"},
            {"sentence": "The cat ate the fish as _ was tasty.", "option1": "cat", "option2": "fish", "answer": "2"},
        ],
        "lambada_openai_test": [{"text": "The cat sees the bird. It sees the cat"}, {"text": "The dog helps the dog"}],
        "wikitext2_valid_test": [
            {"id": "wikitext-2 valid", "text": "Never read."},
            {"id": "wikitext-2 test", "text": "The cat finds the dog. " * 30},
            {"id": "wikitext-2 test", "text": "The bird likes the fish. " * 10},
        ],
    }  # fmt: skip
    for name, rows in sets.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "blimp").mkdir()
    for name in ("causative", "inchoative"):
        lines = "".join(json.dumps(row) + "\n" for row in sentences)
        (folder / "blimp" / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return folder

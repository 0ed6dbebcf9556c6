"""How a text fits a recipe, in words."""

import json

from prism_transformer.data import DataSettings, prepare
from prism_transformer.training.text import data_sentences

from .runs import RECIPE


def test_documents_shorter_than_the_context_are_said(tmp_path):
    lines = [json.dumps({"text": f"text {number:03}"}) for number in range(100)]
    (tmp_path / "text.jsonl").write_text("\n".join(lines), encoding="utf-8")
    settings = DataSettings(
        paths=(str(tmp_path / "text.jsonl"),), tokenizer="bytes", validation_share=0.1, test_share=0.1
    )
    corpus = prepare(settings, tmp_path / "data", say=lambda line: None)
    # 8 bytes and the end-of-text before them; the context is 16
    assert "every document is shorter than the context (9 tokens at most): packed" in data_sentences(RECIPE, corpus)

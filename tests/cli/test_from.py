"""prism train --from and prism compare --from: go on from the weights of a run."""

import json

from prism_transformer.cli import main


def test_train_begins_with_the_weights_of_a_run(trained_study, tiny_yaml, in_empty_folder, capsys):
    run = trained_study / "runs" / "prism" / "seed-0"
    command = ["train", "--recipe", tiny_yaml, "--from", str(run), "--tokens", "128", "--out", "more"]
    assert main(command) == 0
    assert "beginning with the weights of" in "".join(capsys.readouterr())
    config = json.loads((in_empty_folder / "more" / "checkpoints" / "step-000002" / "config.json").read_text())
    assert (config["hidden_size"], config["num_hidden_layers"]) == (32, 4)
    assert main(command) == 0  # the same command again
    assert "is finished" in "".join(capsys.readouterr())


def test_compare_takes_sizes_and_weights_from_the_run(trained_study, tiny_yaml, in_empty_folder, capsys):
    run = trained_study / "runs" / "prism" / "seed-0"
    command = ["compare", "--recipe", tiny_yaml, "--from", str(run), "--tokens", "128", "--seeds", "1"]
    assert main([*command, "--arms", "uniform", "prism", "--out", "study", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["arms"]["prism"]["heads"] == [1, 2, 4, 4]
    assert found["arms"]["prism"]["val_loss"][0] < 5.7  # ln 300 is 5.7, where a new model begins


def test_a_run_is_needed(tiny_yaml, in_empty_folder, capsys):
    assert main(["train", "--recipe", tiny_yaml, "--out", "x", "--from"]) == 2
    assert "--from needs a RUN" in capsys.readouterr().err
    assert main(["train", "--recipe", tiny_yaml, "--out", "x", "--from", "absent"]) == 2
    assert "no such folder" in capsys.readouterr().err

"""metrics.jsonl and the clock of training."""

import json

import pytest

from prism_transformer.errors import InputError
from prism_transformer.training.metrics import Metrics, Stopwatch, read_metrics, tokens_per_second


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def write(path, *records: dict) -> None:
    metrics = Metrics(path, resumed_step=10**9)
    for record in records:
        metrics.write(record)
    metrics.close()


def test_lines_are_appended_and_readable_at_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path, resumed_step=0)
    metrics.write({"step": 1, "loss": 0.1 + 0.2})
    assert read_metrics(path) == [{"step": 1, "loss": 0.1 + 0.2}]
    metrics.write({"step": 2, "loss": 2.5})
    metrics.sync()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]
    metrics.close()


def test_lines_beyond_the_resumed_step_are_cut(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, {"step": 1}, {"step": 2, "val_loss": 1.0}, {"step": 2}, {"step": 3}, {"step": 9})
    Metrics(path, resumed_step=2).close()
    assert read_metrics(path) == [{"step": 1}, {"step": 2, "val_loss": 1.0}, {"step": 2}]


def test_the_end_of_a_diverged_run_is_cut_where_it_goes_on(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, {"step": 4}, {"step": 4, "diverged": True})
    Metrics(path, resumed_step=4).close()
    assert read_metrics(path) == [{"step": 4}]


def test_a_line_without_its_end_is_left_out_and_removed(tmp_path):
    """A process that was killed while it wrote."""
    path = tmp_path / "metrics.jsonl"
    write(path, {"step": 1}, {"step": 2})
    path.write_text(path.read_text() + '{"step": 3, "lo')
    assert read_metrics(path) == [{"step": 1}, {"step": 2}]
    metrics = Metrics(path, resumed_step=2)
    metrics.write({"step": 3})
    metrics.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3]


def test_cutting_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    write(path, {"step": 1}, {"step": 2})
    before = path.read_text()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("prism_transformer.files.os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        Metrics(path, resumed_step=1)
    assert path.read_text() == before


@pytest.mark.parametrize("line", ["{step: 2}", "[1]", "3", '{"loss": 1}', '{"step": "two"}', '{"step": 1}{"step": 2}'])
def test_a_line_that_is_no_record_is_named(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 2: no JSON object with a step; remove the line"):
        read_metrics(path)


def test_bytes_that_are_no_text_are_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"ste\xff": 2}\n')
    with pytest.raises(InputError, match="line 2"):
        read_metrics(path)


def test_a_number_that_is_not_finite_is_never_written(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl", resumed_step=0)
    with pytest.raises(ValueError, match="not JSON compliant"):
        metrics.write({"step": 1, "loss": float("nan")})
    metrics.close()


def test_the_clock_stands_while_paused_and_goes_on_afterwards():
    clock = Clock()
    watch = Stopwatch(30.0, clock=clock)
    clock.now += 2
    with watch.paused():
        clock.now += 50
        assert watch.seconds == 32
    clock.now += 3
    assert watch.seconds == 35


def test_the_clock_goes_on_after_a_failure():
    clock = Clock()
    watch = Stopwatch(clock=clock)
    with pytest.raises(OSError), watch.paused():
        clock.now += 50
        raise OSError
    clock.now += 3
    assert watch.seconds == 3


def test_tokens_per_second_are_tokens_over_the_seconds_of_their_window():
    """Elsewhere the tokens were divided by a clock reading: 60.93 shown, 20,692 true."""
    clock = Clock()
    clock.now = 41_000.0
    watch = Stopwatch(clock=clock)
    before = watch.seconds
    clock.now += 2.0
    assert tokens_per_second(41_384, watch.seconds - before) == 20_692
    assert tokens_per_second(10, 0.0) is None

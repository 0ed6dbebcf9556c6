"""Signals: noted once, deadly the second time, unless a launcher has only told the first one twice."""

import os
import signal

import pytest

from prism_transformer.training.signals import stop_signals


def test_a_signal_told_twice_by_a_launcher_is_one():
    now = [100.0]
    with stop_signals(echo_seconds=2.0, clock=lambda: now[0]) as noted:
        signal.raise_signal(signal.SIGTERM)
        now[0] += 1.9
        signal.raise_signal(signal.SIGTERM)
        assert noted == [signal.SIGTERM]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no closed terminal is told of here")
def test_a_closed_terminal_is_noted_but_not_under_nohup():
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with stop_signals() as noted:
            signal.raise_signal(signal.SIGHUP)
            assert noted == []
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with stop_signals() as noted:
            signal.raise_signal(signal.SIGHUP)
            assert noted == [signal.SIGHUP]
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process to end")
@pytest.mark.parametrize(("later", "ended_by"), [(1.9, 0), (2.0, signal.SIGTERM)])
def test_a_second_signal_after_that_ends_the_process(later, ended_by):
    child = os.fork()
    if child == 0:
        now = [0.0]
        with stop_signals(echo_seconds=2.0, clock=lambda: now[0]):
            signal.raise_signal(signal.SIGINT)
            now[0] += later
            signal.raise_signal(signal.SIGTERM)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert (os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0) == ended_by

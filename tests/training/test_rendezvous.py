"""Processes that are started again settle a name of their own, whatever the dead ones have left in the store."""

import json
import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from prism_transformer.training.rendezvous import fresh_store, settled_name

MINUTE = timedelta(minutes=1)


def start(store: dist.Store, size: int, *, first: int = 0) -> list[str]:
    """The names that processes settle which come one after another, beginning with rank `first`."""
    names: dict[int, str] = {}

    def join(rank: int) -> None:
        names[rank] = settled_name(store, rank, size, time_out=MINUTE)

    threads = [threading.Thread(target=join, args=((rank + first) % size,)) for rank in range(size)]
    for thread in threads:
        thread.start()
        thread.join(0.12)  # the next one comes later than the first looks
    for thread in threads:
        thread.join()
    return [names[rank] for rank in range(size)]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_each_start_settles_one_name_that_no_other_start_had(first):
    """Started three times over one store, by ranks that come in any order, also where fewer or more come back."""
    store, seen = dist.HashStore(), []
    for size in (3, 3, 2, 4):
        names = start(store, size, first=first)
        assert len(names) == size and len(set(names)) == 1
        seen.append(names[0])
    assert len(set(seen)) == 4


def test_a_start_that_was_killed_half_way_does_no_harm():
    """Rank 0 had offered and nobody answered; in another, rank 1 had answered; in a third all was confirmed."""
    store = dist.HashStore()
    store.set("offer", "old")
    store.set("answer/1", json.dumps({"offer": "old", "own": "dead"}))
    store.set("confirmed/old", json.dumps({"1": "dead"}))
    names = start(store, 2, first=1)
    assert len(set(names)) == 1 and names[0] != "old"


def test_who_waits_in_vain_says_so():
    with pytest.raises(TimeoutError, match=r"rank 1 waited 0:00:00\.200000 for the 2 processes"):
        settled_name(dist.HashStore(), 1, 2, time_out=timedelta(seconds=0.2))


def test_without_an_agent_there_is_no_store_of_its_own(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    assert fresh_store(0, 2, time_out=MINUTE) is None

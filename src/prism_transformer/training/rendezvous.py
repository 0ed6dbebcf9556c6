"""How the processes that torchrun has started, or started again, find each other.

torchrun's agent keeps one key-value store over all restarts, so a process may read what a dead one has left there, such
as the address at which it listened, and wait for it. Here the processes first settle a name that no other start has
had, each by a number of its own that rank 0 confirms; under that name they keep their keys.
"""

import json
import os
import secrets
import time
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

_PAUSE = 0.05


def fresh_store(rank: int, size: int, *, time_out: timedelta) -> Store | None:
    """The agent's store under a name of this start alone; None where there is no agent's store."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(host, port, size, is_master=False, timeout=time_out)
    return PrefixStore(settled_name(PrefixStore("prism", store), rank, size, time_out=time_out), store)


def settled_name(store: Store, rank: int, size: int, *, time_out: timedelta) -> str:
    """A name for this start of `size` processes, whatever earlier ones have left in `store`.

    Rank 0 offers a name. The others answer with the offer that they see and a number of their own. Once all have
    answered this offer, rank 0 confirms it with their numbers. An old offer is never confirmed with new numbers, so
    whoever has seen one looks again. Raises TimeoutError.
    """
    own, end = secrets.token_hex(8), time.monotonic() + time_out.total_seconds()
    if rank == 0:
        store.set("offer", own)
    while time.monotonic() < end:
        if rank == 0:
            answers = {str(other): _read(store, f"answer/{other}") for other in range(1, size)}
            if all(answer.get("offer") == own for answer in answers.values()):
                store.set(f"confirmed/{own}", json.dumps({other: answer["own"] for other, answer in answers.items()}))
                return own
        elif store.check(["offer"]):
            offer: str = store.get("offer").decode()
            store.set(f"answer/{rank}", json.dumps({"offer": offer, "own": own}))
            if _read(store, f"confirmed/{offer}").get(str(rank)) == own:
                return offer
        time.sleep(_PAUSE)
    raise TimeoutError(f"rank {rank} waited {time_out} for the {size} processes of this run")


def _read(store: Store, key: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(store.get(key)) if store.check([key]) else {}
    return found

"""Workers on a real PostgreSQL, which the test starts as a user without rights: killed ones are taken up there too."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prism_transformer.search.begin import join_search
from prism_transformer.search.ladder import RunId
from prism_transformer.search.storage import open_records

from .test_storage import test_what_one_worker_writes_another_reads as assert_two_connections_agree
from .test_worker import assert_kills_lose_nothing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="starts a server as another user")]


def find(program: str) -> Path:
    """A server program: Debian keeps them beside the version, others on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), key=lambda path: int(path.parts[4]))
    if found:
        return found[-1]
    if on_path := shutil.which(program):
        return Path(on_path)
    pytest.skip(f"no {program}: install the system's package postgresql")


def as_user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: its own user, or any other without rights."""
    if os.getuid() != 0:
        return {}
    import pwd  # which Windows has not

    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    pytest.skip("no user without rights who could run PostgreSQL")


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The URL of a fresh server of our own; it keeps its files and its socket in one folder."""
    pytest.importorskip("psycopg", reason="no driver: pip install psycopg[binary]")
    user, folder = as_user(), Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    try:
        if user:
            os.chown(folder, user["user"], user["group"])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        data = folder / "data"
        run = {"cwd": folder, "check": True, "capture_output": True, **user}
        subprocess.run([find("initdb"), "-D", data, "-U", "search", "-A", "trust", "--no-sync"], **run)
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder} -c fsync=off"
        control = [find("pg_ctl"), "-D", data, "-w", "-t", "300", "-l", folder / "log"]
        subprocess.run([*control, "-o", options, "start"], **run)
        try:
            yield f"postgresql+psycopg://search@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_two_connections_agree(database: str) -> None:
    assert_two_connections_agree(database)


def test_of_many_claims_at_one_moment_one_counts(database: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    run = RunId("search", "4x3", 512, 99)
    everyone = [open_records(database, "crowd") for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        claims = list(pool.map(lambda k: everyone[k].claim(run, f"worker {k}", f"token {k}"), range(6)))
    assert sum(claim is not None for claim in claims) == 1
    assert [each.state for each in everyone[0].attempts()].count("running") == 1


def test_killed_workers_lose_nothing_and_another_folder_may_join(
    database: str, begin: Callable[..., Any], tmp_path: Path
) -> None:
    search = begin(tmp_path / "s", storage=database, name="killed", budget="48 runs")
    assert_kills_lose_nothing(search, tmp_path)
    elsewhere = join_search(
        database, storage=None, name="killed", out=tmp_path / "elsewhere", data=(), say=lambda sentence: None
    )
    assert elsewhere.state().is_finished and elsewhere.plan == search.plan

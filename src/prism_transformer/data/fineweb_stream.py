"""The documents of FineWeb, streamed from the hub, or from a folder in its layout, with a place to go on from.

sample/10BT/000_00000.parquet …            a row a document: text, and columns that are not read
data/CC-MAIN-2024-10/000_00000.parquet …   the whole of a crawl
"""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, RunError
from .fineweb_network import Patience

if TYPE_CHECKING:
    import datasets

HUB = "HuggingFaceFW/fineweb"
SUBSETS = "sample-10BT, sample-100BT, sample-350BT and crawls like CC-MAIN-2024-10"


class FineWebStream:
    """Documents in the order of the data set. A failure of the network is waited out, and reading goes on behind the
    last document that was given out."""

    def __init__(
        self, source: str, subset: str, *, revision: str | None, state: dict[str, Any] | None, patience: Patience
    ) -> None:
        """`state` is what `position` gave; `revision` of the hub, None for a folder."""
        self._source, self._subset, self._revision, self._patience = source, subset, revision, patience
        self._state = state
        self._open: datasets.IterableDataset | None = None

    def position(self) -> dict[str, Any] | None:
        """Where the next document is, as JSON holds it."""
        return self._open.state_dict() if self._open is not None else self._state

    def documents(self) -> Generator[str]:
        """Raises InputError for a data set that is not there or holds no text, RunError where the network is away."""
        while True:
            try:
                rows = self._opened()
                for row in rows:
                    self._open = rows
                    self._patience.worked()
                    yield row["text"] or ""
                return
            except (InputError, RunError):
                raise
            except Exception as error:  # the libraries below raise anything for a connection that broke
                self._state, self._open = self.position(), None
                if Path(self._source).is_dir():
                    raise InputError(f"{self._source}: cannot be read ({error}); mend the folder") from error
                self._patience.failed(f"reading {self._source}", error)

    def _opened(self) -> "datasets.IterableDataset":
        import datasets

        try:
            rows = datasets.load_dataset(
                self._source,
                data_files=subset_files(self._subset),
                split="train",
                streaming=True,
                revision=self._revision,
            ).select_columns(["text"])
        except FileNotFoundError as error:
            raise InputError(
                f"{self._source}: no {subset_files(self._subset)} there, where the subset {self._subset!r} should be; "
                f"the subsets are {SUBSETS} ({str(error).strip().partition(chr(10))[0]})"
            ) from None
        except ValueError as error:
            raise InputError(f"{self._source}, {self._subset}: {error}") from None
        if self._state is not None:
            rows.load_state_dict(self._state)
        return rows


def subset_files(subset: str) -> str:
    """The files of a subset. By their names, since its README's list wants every subset's files to be there."""
    kind, _, size = subset.partition("-")
    return f"sample/{size}/*.parquet" if kind == "sample" else f"data/{subset}/*.parquet"


def resolve_revision(source: str, revision: str | None, *, patience: Patience, say: Callable[[str], None]) -> str:
    """The commit of the hub that `revision` (or its newest) means now, so that a resumed command reads the same."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError, RevisionNotFoundError

    say(f"asking the hub for {source}")
    while True:
        try:
            return str(HfApi().dataset_info(source, revision=revision, timeout=20).sha)
        except (RepositoryNotFoundError, RevisionNotFoundError, OfflineModeIsEnabled) as error:
            reason = str(error).strip().partition("\n")[0]
            raise InputError(
                f"{source}{f' at {revision}' if revision else ''}: cannot be had from the hub ({reason}); for a copy "
                f"of it on this machine give --source FOLDER"
            ) from None
        except Exception as error:  # the libraries below raise anything for a connection that broke
            patience.failed(f"asking the hub for {source}", error)

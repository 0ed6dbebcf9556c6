import ast
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from prism_transformer.data.embedded import PythonDocumentation, group_of
from prism_transformer.data.encode import survey
from prism_transformer.data.reading import Document, Tally
from prism_transformer.data.splits import split_edges


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return list(PythonDocumentation().documents(Tally()))


def text_of(document: Document) -> str:
    return "".join(document.blocks)


def test_it_is_about_two_megabytes_of_prose(documents: list[Document]) -> None:
    size = sum(len(text_of(document).encode()) for document in documents)
    assert 1_500_000 < size < 6_000_000
    assert len(documents) > 400


def test_it_holds_topics_modules_and_built_ins(documents: list[Document]) -> None:
    texts = {text_of(document).partition("\n")[0]: text_of(document) for document in documents}
    source = Path(json.__file__).read_text(encoding="utf-8")
    assert 'The "while" statement' in texts
    assert ast.get_docstring(ast.parse(source)) in texts["json"]
    assert (itertools.chain.__doc__ or "?").splitlines()[-1] in texts["itertools"]


def test_no_docstring_is_there_twice(documents: list[Document]) -> None:
    """`object.__init__` alone would be repeated for every class of C."""
    whole = "\n".join(text_of(document) for document in documents)
    assert whole.count("Initialize self.  See help(type(self)) for accurate signature.") == 1


@pytest.mark.parametrize(
    ("module", "group"),
    [
        ("json", "json"),
        ("json.decoder", "json"),
        ("_json", "json"),
        ("_pydecimal", "decimal"),
        ("_pyio", "io"),
        ("ntpath", "os"),
        ("pyclbr", "pyclbr"),
    ],
)
def test_near_duplicates_are_one_group(module: str, group: str) -> None:
    assert group_of(module) == group


def test_no_group_is_in_two_splits_and_none_is_cut() -> None:
    found = survey(PythonDocumentation())
    edges = split_edges(found.keys, found.sizes, validation_share=0.05, test_share=0.05)
    whole = [(train == size, validation == size) for (train, validation), size in zip(edges, found.sizes, strict=True)]
    assert ((edges == 0) | (edges == found.sizes[:, None])).all()
    sides: dict[int, set[tuple[bool, bool]]] = {}
    for key, side in zip(found.keys.tolist(), whole, strict=True):
        sides.setdefault(key, set()).add(side)
    assert all(len(side) == 1 for side in sides.values())
    assert {side for each in sides.values() for side in each} == {(True, True), (False, True), (False, False)}


def test_it_does_not_depend_on_what_the_process_did_before(documents: list[Document]) -> None:
    """This process runs pytest; the other one leaves its own objects in sys and builtins. Only what is documented from
    the living interpreter can differ, so the other one skips the sources."""
    code = (
        "import builtins, json, sys; sys.excepthook = print; sys.secret = len; builtins._ = len\n"
        "from prism_transformer.data import embedded\n"
        "embedded._library_files = dict\n"
        "print(json.dumps(embedded._texts()))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    texts = [text for _, text in json.loads(other)]
    assert len(texts) > 80
    assert texts == [text_of(document) for document in documents[: len(texts)]]


def test_python_version_is_its_identity() -> None:
    (info,) = PythonDocumentation().identity({})
    assert f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}" in info.name
    assert info == PythonDocumentation().identity({})[0]

"""The embedded corpus: the documentation that every Python brings, for a first run with no download.

The reference topics of `pydoc_data`, and the docstrings of the standard library's modules (out of their sources,
nothing is imported) and of the modules built into the interpreter, as `help()` would show them. Technical English,
under the PSF licence. One document a topic or module; a docstring that was there before is left out.
"""

import ast
import hashlib
import importlib
import inspect
import os
import platform
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from ..errors import InputError
from .manifest import SourceInfo
from .reading import Document, Tally

_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
_TOPICS = Path("pydoc_data", "topics.py")
# Modules that say the same in other words; what `_name` and `_pyname` say, `name` says too.
_SAME_GROUP = {
    **dict.fromkeys(("posix", "nt", "posixpath", "ntpath", "genericpath"), "os"),
    **dict.fromkeys(("sre_compile", "sre_constants", "sre_parse", "sre"), "re"),
    **dict.fromkeys(("xxsubtype", "topics"), "builtins"),
    "collections_abc": "collections",
}
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class PythonDocumentation:
    """The documentation of the running Python, as sources of a corpus."""

    hidden = 0
    binary = 0

    @property
    def origin(self) -> str:
        return f"the documentation in Python {platform.python_version()} (technical English)"

    @property
    def files(self) -> int:
        return len(_library_files())

    def identity(self, known: Mapping[str, SourceInfo]) -> tuple[SourceInfo, ...]:
        """The version of Python, and the names and sizes of the library's files."""
        listing = "".join(f"{name} {path.stat().st_size}\n" for name, path in _library_files().items())
        version = f"{platform.python_implementation()} {platform.python_version()} documentation"
        size = sum(path.stat().st_size for path in _library_files().values())
        return (
            SourceInfo(name=version, size=size, modified_ns=0, sha256=hashlib.sha256(listing.encode()).hexdigest()),
        )

    def documents(self, tally: Tally) -> Iterator[Document]:
        for name, text in _texts():
            yield Document((text,), group=group_of(name))


def group_of(module: str) -> str:
    """The unit of a split that a module belongs to: its top-level package, near-duplicates together."""
    name = module.partition(".")[0].lstrip("_")
    if module.startswith("_py") and name.removeprefix("py") in sys.stdlib_module_names:
        name = name.removeprefix("py")
    return _SAME_GROUP.get(name, name)


@cache
def _texts() -> tuple[tuple[str, str], ...]:
    """(module, text) of every document, in order; kept, since a corpus is read more than once."""
    seen: set[str] = set()
    texts = [("topics.builtins", text) for text in _topics()]
    for name in ("builtins", *sorted(set(sys.builtin_module_names) - {"builtins"})):
        texts.append((name, _built_in_text(name, seen)))
    for name, path in _library_files().items():
        texts.append((name, _source_text(name, path, seen)))
    texts = [(name, text) for name, text in texts if text]
    if not texts:
        raise InputError("this Python brings no documentation (its library has no sources); give text of your own")
    return tuple(texts)


@cache
def _library_files() -> dict[str, Path]:
    """Dotted name -> source file of every module of the standard library, sorted by path."""
    root = Path(sysconfig.get_paths()["stdlib"])
    found = {}
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in _LEFT_OUT and name.isidentifier())
        for file in sorted(file for file in files if file.endswith(".py")):
            path = Path(folder, file)
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _topics() -> Iterator[str]:
    path = Path(sysconfig.get_paths()["stdlib"]) / _TOPICS
    if not path.is_file():
        return
    for node in ast.parse(path.read_bytes()).body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Dict):
            for _, text in sorted(ast.literal_eval(value).items()):
                yield text.strip() + "\n"


def _source_text(name: str, path: Path, seen: set[str]) -> str:
    """The docstrings of one module, each under its name and arguments."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # a template or a file for another Python
        return ""
    entries = [(name, ast.get_docstring(tree)), *_definitions(tree, "")]
    return _layout(name, entries, seen)


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, str | None]]:
    """(heading, docstring) of the classes and functions in a module or class, also under `if` and `try`."""
    for child in [*getattr(node, "body", ()), *getattr(node, "orelse", ())]:
        if isinstance(child, _Definition):
            name = prefix + child.name
            doc = ast.get_docstring(child)
            yield (f"{name}({ast.unparse(child.args)})" if doc and not isinstance(child, ast.ClassDef) else name), doc
            if isinstance(child, ast.ClassDef):
                yield from _definitions(child, name + ".")
        elif isinstance(child, ast.If | ast.Try):
            yield from _definitions(child, prefix)


def _built_in_text(name: str, seen: set[str]) -> str:
    """The docstrings of a module that is part of the interpreter: importing it runs no file.

    Private names are left out: programs leave their own there, such as `_`.
    """
    module = importlib.import_module(name)
    entries = [(name, inspect.getdoc(module))]
    for key, value in sorted(vars(module).items()):
        if key.startswith("_") and not key.startswith("__"):
            continue
        entries.append((key, _own_doc(value)))
        if isinstance(value, type):
            entries += [(f"{key}.{part}", _own_doc(member)) for part, member in sorted(vars(value).items())]
    return _layout(name, entries, seen)


def _own_doc(value: object) -> str | None:
    """The docstring of a type or routine of C; of nothing else, since programs put their own objects into sys."""
    if not (isinstance(value, type) or inspect.isroutine(value) or inspect.isdatadescriptor(value)):
        return None
    doc = None if inspect.isfunction(value) else getattr(value, "__doc__", None)
    return inspect.cleandoc(doc) if isinstance(doc, str) else None


def _layout(name: str, entries: list[tuple[str, str | None]], seen: set[str]) -> str:
    """A page like that of `help()`; "" where no docstring is new."""
    page = []
    for heading, doc in entries:
        if doc and doc.strip() and doc not in seen:
            seen.add(doc)
            page.append(heading if heading == name else f"{name}.{heading}")
            page.append(doc.strip() + "\n")
    return "\n".join(page)

"""mkdocs: list the log of experiments, newest first, so that a new entry needs no line in mkdocs.yml."""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Add docs/lab/*.md to the navigation."""
    pages = sorted(Path(config["docs_dir"], "lab").glob("*.md"), reverse=True)
    config["nav"].append({"Lab log": [f"lab/{page.name}" for page in pages]})
    return config

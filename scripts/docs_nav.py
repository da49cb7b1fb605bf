"""Add the decision records to the navigation of the documentation site."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> None:
    """Append all pages of docs/decisions, called by MkDocs."""
    docs = Path(config["docs_dir"])
    pages = [str(path.relative_to(docs)) for path in sorted(docs.glob("decisions/*.md"))]
    config["nav"].append({"Decisions": pages})

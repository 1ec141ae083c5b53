"""Print every folder and module with the first line of its docstring.

    python tools/tree.py [FOLDER ...]

The site of ``make docs`` shows it as a page: MkDocs calls `on_files` (``hooks`` in
``mkdocs.yml``), so that no printed tree is committed.
"""

import argparse
import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from import_graph import ROOT, list_files, parse

#: Column at which sentences begin.
WIDTH = 36


def list_modules(folders: Iterable[str] = ()) -> list[Path]:
    """List the Python files that git does not ignore, without tests unless named."""
    paths = list_files(*(folders or [".", ":!tests"]))
    return [path.relative_to(ROOT) for path in paths if path.suffix == ".py"]


def read_first_line(path: Path) -> str:
    """Return the first line of a module's docstring, or nothing where there is none."""
    file = ROOT / path
    if not file.is_file():
        return ""
    docstring = ast.get_docstring(parse(file)) or ""
    return docstring.partition("\n")[0]


def format_line(path: Path, name: str, sentence: str) -> str:
    """Write one line of the tree, indented by the depth of the path."""
    indent = "  " * (len(path.parts) - 1)
    return f"{indent + name:{WIDTH}}{sentence}".rstrip()


def format_tree(modules: Iterable[Path]) -> str:
    """Write modules as a tree; a folder has the sentence of its ``__init__.py``."""
    lines = []
    folders = set()
    for path in sorted(modules):
        for folder in reversed(path.parents[:-1]):
            if folder not in folders:
                folders.add(folder)
                sentence = read_first_line(folder / "__init__.py")
                lines.append(format_line(folder, f"{folder.name}/", sentence))
        if path.name != "__init__.py":
            lines.append(format_line(path, path.name, read_first_line(path)))
    return "\n".join(lines)


def on_files(files: Any, config: Any) -> Any:
    """Add the tree to the pages of the site: a hook of MkDocs."""
    # Only the site needs MkDocs; the command runs without it.
    from mkdocs.structure.files import File

    introduction = "Every folder and module, by the first line of its docstring."
    content = (
        f"# Files\n\n{introduction}\n\n```text\n{format_tree(list_modules())}\n```\n"
    )
    files.append(File.generated(config, "tree.md", content=content))
    return files


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Print folders and modules with their purpose."
    )
    parser.add_argument(
        "folders", nargs="*", metavar="FOLDER", help="such as methods; all without"
    )
    arguments = parser.parse_args()
    modules = list_modules(arguments.folders)
    if not modules:
        folders = " ".join(arguments.folders)
        parser.error(f"FOLDER={folders} holds no module that git does not ignore")
    print(format_tree(modules))

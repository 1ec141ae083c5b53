"""Print every folder and module with the first line of its docstring.

    python tools/tree.py [FOLDER ...]

The site of ``make docs`` shows it as a page: MkDocs calls `on_files` (``hooks`` in
``mkdocs.yml``), so that no printed tree is committed.
"""

import argparse
import ast
import subprocess
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: Column at which sentences begin.
WIDTH = 36


def list_modules(folders: Iterable[str] = ()) -> list[PurePosixPath]:
    """List the Python files that git tracks, without tests unless named."""
    folders = list(folders) or [".", ":!tests"]
    command = ["git", "ls-files", "--", *folders]
    listing = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [PurePosixPath(name) for name in listing.stdout.splitlines()]
    return [path for path in paths if path.suffix == ".py" and (ROOT / path).is_file()]


def read_first_line(path: PurePosixPath) -> str:
    """Return the first line of a module's docstring, or nothing where there is none."""
    file = ROOT / path
    if not file.is_file():
        return ""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def format_line(path: PurePosixPath, name: str, sentence: str) -> str:
    """Write one line of the tree, indented by the depth of the path."""
    indent = "  " * (len(path.parts) - 1)
    return f"{indent + name:{WIDTH}}{sentence}".rstrip()


def format_tree(modules: Iterable[PurePosixPath]) -> str:
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
        parser.error(
            f"FOLDER={' '.join(arguments.folders)} holds no module that git tracks"
        )
    print(format_tree(modules))

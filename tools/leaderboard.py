"""Make tables of the leaderboard sortable, with filters, in the site of ``make docs``.

MkDocs calls these hooks (``hooks`` in ``mkdocs.yml``). The script is that of reports.
"""

from typing import Any

from import_graph import ROOT

PAGE = "leaderboard.md"
SCRIPT = "tables.js"
TEMPLATES = ROOT / "analysis" / "templates"


def on_files(files: Any, config: Any) -> Any:
    """Add the script to the files of the site."""
    # Only the site needs MkDocs.
    from mkdocs.structure.files import File

    script = TEMPLATES / SCRIPT
    content = script.read_text(encoding="utf-8")
    file = File.generated(config, SCRIPT, content=content)
    files.append(file)
    return files


def on_page_content(
    html: str,
    page: Any,
    config: Any,
    files: Any,
) -> str:
    """Mark the tables of the leaderboard."""
    if page.file.src_path != PAGE:
        return html
    # The theme has no style for tables that have a class.
    html = html.replace("<table>", '<div class="sortable filtered"><table>')
    return html.replace("</table>", "</table></div>")

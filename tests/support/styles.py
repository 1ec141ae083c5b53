"""How figures draw a method, for fabricated rows: the columns that real rows have."""

from functools import cache

from pkm.experiments.cell.cell import STYLE
from pkm.experiments.config.configuration import choices, method_entry
from pkm.experiments.fit.rows import style_columns


@cache
def style_of(method: str) -> dict[str, str]:
    """Label, color and marker of a method of ``conf/method``; nothing for other names."""
    if method not in choices("method"):
        return {}
    entry = method_entry(method)
    configured = {key: entry[key] for key in STYLE if key in entry}
    return style_columns(entry["_target_"], entry.get("variant", ""), configured)

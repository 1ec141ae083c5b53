"""How figures draw a method, for fabricated rows: the columns that real rows have."""

from functools import cache

from pkm.experiments.cell.cell import STYLE
from pkm.experiments.config.groups import choices, read_choice
from pkm.experiments.fit.rows import style_columns
from pkm.methods import load_method


@cache
def style_of(method: str) -> dict[str, str]:
    """Label, color and marker of a method of ``conf/method``; nothing for other names."""
    if method not in choices("method"):
        return {}
    entry = read_choice("method", method)
    configured = {key: entry[key] for key in STYLE if key in entry}
    method = load_method(entry["_target_"])
    return style_columns(method, entry.get("variant", ""), configured)

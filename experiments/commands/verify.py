"""Run the cells behind a claim or figure again, and compare: ``pkm verify NAME``.

    pkm verify fastlloyd/real-best-private
    pkm verify dpm/table1 profile=smoke results=results jobs=2

NAME is the id of a claim, or a paper and a figure's name. The stored cells that it
rests on are run again, into a temporary folder. Further words are keys of `pkm
reproduce` (profile, results, data, jobs; the profile is quick by default).

The exit code is 0 if stored and fresh rows agree bit for bit (running times left out),
1 if they do not, and 2 if the request was refused.
"""

import tempfile
from collections.abc import Mapping, Sequence

from pkm.experiments.applications.composition import load_config
from pkm.experiments.backends.backends import check_backend, run_cells
from pkm.experiments.config.backend import Backend
from pkm.experiments.console.console import make_console, make_main, require_one
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.reports.diff import SAME, compare_values
from pkm.experiments.reports.verify import evaluate, find_target, select_needed
from pkm.experiments.store.cell_tables import read_values
from pkm.experiments.store.store import Store

#: How many cells that differ are named.
MAX_LINES = 20


def run(names: Sequence[str], options: Mapping[str, str]) -> int:
    """Run the cells again and print what differs; return 1 if something does."""
    name = require_one(names, "name", "one claim or figure")
    target = find_target(name)
    overrides = [f"{key}={value}" for key, value in options.items()]
    # Nothing is written to MLflow.
    paper = f"paper={name.partition('/')[0]}"
    config = load_config([*overrides, paper, "tracking=none"])
    plan = make_plan(config.paper, config.profile, data_dir=config.data)
    store = Store(config.results)
    rows = plan.read_rows(store)
    missing = plan.list_missing(store)
    stored = rows if rows.empty else select_needed(target, rows, missing)
    profile = config.profile.name
    if stored.empty:
        raise FileNotFoundError(
            f"results={config.results!r} lacks the cells of {name} ({profile}): "
            f"run pkm reproduce paper={plan.paper} profile={profile} first"
        )

    needed = set(stored["cell"])
    cells = [cell for cell in plan.cells if cell.key in needed]
    keys = [cell.key for cell in cells]
    print(f"{name} ({profile}): {len(cells)} cells are run again")
    backend = check_backend(Backend(**config.backend))
    console = make_console()
    with tempfile.TemporaryDirectory() as folder:
        again = Store(folder)
        outcomes = run_cells(
            cells, again, backend, data_dir=config.data, console=console
        )
        compared = compare_values(read_values(store, keys), read_values(again, keys))
        fresh = plan.read_rows(again)
    errors = {outcome.key: outcome.error for outcome in outcomes}
    different = compared[compared["state"] != SAME]
    print(
        f"stored and fresh rows agree bit for bit in {len(cells) - len(different)} of "
        f"{len(cells)} cells (running times left out)"
    )
    for line in different.head(MAX_LINES).itertuples():
        cell = cells[line.Index]
        print(f"  {cell.label}: {errors[cell.key] or line.metric} ({line.state})")
    if fresh.empty:
        return 1
    # Several sweeps may request a cell, of which the target needs some.
    fresh = stored[["sweep", "cell"]].drop_duplicates().merge(fresh)
    verdict, table = evaluate(target, stored, missing)
    fresh_verdict, fresh_table = evaluate(target, fresh, missing)
    if verdict:
        print(f"verdict on stored rows: {verdict}")
        print(f"verdict on fresh rows: {fresh_verdict}")
    else:
        is_equal = table.equals(fresh_table)
        print(f"numbers of the figure: {'equal' if is_equal else 'not equal'}")
    return int(len(different) > 0)


main = make_main("verify", __doc__, "NAME", (), run)

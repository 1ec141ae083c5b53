"""A small paper as a plan, for tests of planning and of what is planned."""

from pkm.experiments.plan.plan import make_plan

PROFILE = {"name": "tiny", "seeds": 2}


def paper(**sweep):
    default = {"datasets": ["iris"], "methods": ["lloyd"]}
    return {"name": "mini", "sweeps": {"first": default | sweep}}


def cells(**sweep):
    return [cell for _, cell in make_plan(paper(**sweep), PROFILE).sweep_cells]

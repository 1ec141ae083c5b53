"""Flaws that audits of published variants find."""

# Releases that cost more than is charged, with the flaw that says so. All other registered flaws
# are of a kind that no release shows: quantities that are taken as public, or accuracy.
REGISTERED = {
    "DPM published": {"gap_percentile": "F-13"},
    "DPLloyd published": {"budget": "F-26"},
}

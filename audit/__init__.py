"""Attacks on methods: releases replayed on neighbors, noise tested, centers attacked.

Examples
--------
>>> from pkm.audit import audit
>>> from pkm.methods import GLloyd
>>> audit(GLloyd(3), n_pairs=4).verdicts["replay"]
'consistent'
"""

from pkm.audit.report import AuditReport, Finding, audit

__all__ = [
    "AuditReport",
    "Finding",
    "audit",
]

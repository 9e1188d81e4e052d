"""What goes wrong in a run, from its metrics, rollouts and token records: a file per kind of
fault, and a table of them."""

from agentsgym.report.doctor.evidence import Evidence, PlayedSet, read_evidence
from agentsgym.report.doctor.fault import Fault
from agentsgym.report.doctor.rules import RULES, Rule, diagnose

__all__ = [
    "RULES",
    "Evidence",
    "Fault",
    "PlayedSet",
    "Rule",
    "diagnose",
    "read_evidence",
]

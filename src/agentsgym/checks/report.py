"""The findings of a check: frozen, printable, and available as JSON."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class CheckFailed(AssertionError):
    """An environment failed its check; the message is the report's text."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: whether it passed, the evidence, warnings, and the numbers behind it."""

    name: str
    passed: bool
    evidence: str
    warnings: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in `Report.to_json`."""
        return {
            "name": self.name,
            "passed": self.passed,
            "evidence": self.evidence,
            "warnings": list(self.warnings),
            "numbers": dict(self.numbers),
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All findings about one environment. `seconds` is how long the check took."""

    env: str
    env_config: Mapping[str, Any]
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every check passed; warnings do not count."""
        return all(finding.passed for finding in self.findings)

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The checks that failed."""
        return tuple(finding for finding in self.findings if not finding.passed)

    @property
    def warnings(self) -> tuple[str, ...]:
        """All warnings."""
        return tuple(warning for finding in self.findings for warning in finding.warnings)

    def __getitem__(self, name: str) -> Finding:
        """The finding of a check by its name. Raises KeyError."""
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(f"no check {name!r}; the checks are {[f.name for f in self.findings]}")

    def raise_if_failed(self) -> "Report":
        """Return the report; raise CheckFailed with its text if a check failed."""
        if not self.passed:
            raise CheckFailed(self.to_text())
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "env": self.env,
            "env_config": dict(self.env_config),
            "passed": self.passed,
            "seconds": round(self.seconds, 3),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def to_json(self) -> str:
        """One JSON object on one line."""
        return json.dumps(self.to_dict(), default=repr)

    def to_text(self) -> str:
        """A line per check, with its warnings below it."""
        width = max((len(finding.name) for finding in self.findings), default=0)
        lines = []
        for finding in self.findings:
            mark = "passed" if finding.passed else "FAILED"
            lines.append(f"{mark}  {finding.name:<{width}}  {finding.evidence}")
            lines += [f"        warning: {warning}" for warning in finding.warnings]
        verdict = "passed"
        if not self.passed:
            verdict = f"failed: {', '.join(finding.name for finding in self.failures)}"
        return "\n".join([*lines, f"{self.env}: {verdict} ({self.seconds:.1f} s)"])

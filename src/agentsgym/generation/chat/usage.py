"""Usage of a paid endpoint, and its cost."""

import threading
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per million tokens, in any one currency."""

    prompt: float = 0.0
    completion: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Totals reported by the endpoint. `requests` counts answered requests, `retries` the extra
    attempts; `cost` is in the currency of the prices."""

    requests: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0


class Meter:
    """Adds up usage from several threads."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._lock = threading.Lock()
        self._total = Usage()

    @property
    def total(self) -> Usage:
        """The usage so far."""
        return self._total

    def answered(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Count an answered request."""
        price = self._prices
        cost = (prompt_tokens * price.prompt + completion_tokens * price.completion) / 1e6
        with self._lock:
            total = self._total
            self._total = replace(
                total,
                requests=total.requests + 1,
                prompt_tokens=total.prompt_tokens + prompt_tokens,
                completion_tokens=total.completion_tokens + completion_tokens,
                cost=total.cost + cost,
            )

    def tried_again(self) -> None:
        """Count a retry."""
        with self._lock:
            self._total = replace(self._total, retries=self._total.retries + 1)

"""Wilson's interval of a plain proportion."""

import math

_Z95 = 1.959963984540054


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a proportion of independent trials.

    Raises ValueError unless 0 <= successes <= trials and trials >= 1.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"need 0 <= successes <= trials, trials >= 1; got {successes}, {trials}")
    share = successes / trials
    z2 = _Z95**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z95 * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    half /= 1 + z2 / trials
    return max(0.0, centre - half), min(1.0, centre + half)

"""What samples say, with exact order statistics: no model of the noise, no random numbers."""
from math import comb

ROUNDS_MIN = 9  # fewer (paired) rounds decide nothing
CONFIDENCE = 0.95


def median(values):
    """The middle, or the mean of the two middle ones."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def interval(values, confidence=CONFIDENCE):
    """(low, high): the narrowest pair of order statistics, as far from either end, that holds the median of what
    was sampled with this confidence whatever its distribution. None when there are too few (fewer than 6 for 95 %).

    The median lies below the (k+1)-th smallest of n values when at most k of them are below it: Bin(n, 1/2) <= k.
    """
    ordered = sorted(values)
    n = len(ordered)
    best = None
    outside = 0.0
    for k in range(n // 2):
        outside += comb(n, k) / 2**n
        if 1 - 2 * outside < confidence:
            break
        best = (ordered[k], ordered[n - 1 - k])
    return best


def paired_ratios(samples, against):
    """The ratio in each round in which both have a value."""
    return [a / b for a, b in zip(samples, against) if a is not None and b is not None and b > 0]


def verdict(bounds, operator, bound):
    """`holds` when the interval clears the bound, `fails` when it is wholly on the other side, else `not decidable`."""
    if bounds is None:
        return "not decidable"
    low, high = bounds
    if operator == ">=":
        return "holds" if low >= bound else "fails" if high < bound else "not decidable"
    if operator == "<=":
        return "holds" if high <= bound else "fails" if low > bound else "not decidable"
    raise ValueError(f"no operator {operator!r}")

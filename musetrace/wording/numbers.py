"""Numbers for people: times in us with sensible digits, counts with separators, shares, sizes."""

from __future__ import annotations

NOTHING = "-"

_TWO_DECIMALS_BELOW_NS = 10_000
_ONE_DECIMAL_BELOW_NS = 1_000_000
_MILLION = 1_000_000


def decimals_for(longest_ns: int) -> int:
    """How many decimals of a us to show in a table whose longest time is this: about four digits in all."""
    if longest_ns < _TWO_DECIMALS_BELOW_NS:
        return 2
    return 1 if longest_ns < _ONE_DECIMAL_BELOW_NS else 0


def us(time_ns: float | None, decimals: int) -> str:
    """A time in us, ``-`` for None."""
    if time_ns is None:
        return NOTHING
    text = f"{time_ns / 1000:,.{decimals}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def bounded_us(time_ns: int | None, uncertainty_ns: int | None, decimals: int) -> str:
    """A time in us; one below its uncertainty, of which not even the sign is certain, as ``<0.04``."""
    if time_ns is None or uncertainty_ns is None or abs(time_ns) >= uncertainty_ns:
        return us(time_ns, decimals)
    last_digit_ns = 10 ** (3 - decimals)
    return f"<{us(-(-uncertainty_ns // last_digit_ns) * last_digit_ns, decimals)}"


def whole_ns(time_ns: int | None) -> str:
    """A number of ns, ``-`` for None."""
    return NOTHING if time_ns is None else f"{time_ns:,}"


def count(number: int) -> str:
    """A count with separators; from a million on in millions."""
    return f"{number:,}" if number < _MILLION else f"{number / _MILLION:,.2f}M"


def percent(share: float | None) -> str:
    """A share in %, ``-`` for None."""
    return NOTHING if share is None else f"{100 * share:.1f} %"


def size(number_of_bytes: int) -> str:
    """A size in decimal units."""
    amount, unit = float(number_of_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:,.0f} {unit}" if unit == "B" else f"{amount:,.1f} {unit}"

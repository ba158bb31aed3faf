"""Numbers of any size as a reader wants them."""

import math

from attendo.compare.report.wording import Number

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def shown(value: Number) -> str:
    """Say a number with two or three digits, a very small or large one as a power of ten.

    >>> shown(0.02583), shown(4096), shown(4.8e-16), shown(1e-20)
    ('0.0258', '4,096', '5·10⁻¹⁶', '10⁻²⁰')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    power = math.floor(math.log10(abs(value)))
    digit = round(value / 10.0**power)
    if abs(digit) == 10:
        digit, power = digit // 10, power + 1
    ten = f"10{str(power).translate(RAISED)}"
    return ten if digit == 1 else f"{digit}·{ten}"

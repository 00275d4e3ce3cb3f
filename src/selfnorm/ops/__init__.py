"""Sums over some or all words; this file chooses who computes them."""

from selfnorm.ops.plain import MOST, Drawn, Table, exp_sum, log_sum_exp, log_z, product, softplus, softplus_sum, wide
from selfnorm.ops.rows import take

__all__ = [
    "MOST",
    "Drawn",
    "Table",
    "exp_sum",
    "log_sum_exp",
    "log_z",
    "product",
    "softplus",
    "softplus_sum",
    "take",
    "wide",
]

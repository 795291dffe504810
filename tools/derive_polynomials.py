#!/usr/bin/env python3
"""Derives the fp32 polynomials of src/kernels/math_constants.h and prints them.

Each is a minimax fit (least squares reweighted by Lawson's rule, in double) whose coefficients are
rounded to fp32 one by one, lowest power first; after each rounding the free ones are fitted again,
so that they make up for it.

  exp2  2^f = 1 + f * P(f),        f in [-1/2, 1/2],                   absolute error of 2^f
  log2  log2(1 + t) = t * P(t),    t in [sqrt(1/2) - 1, sqrt(2) - 1],  relative error

usage: derive_polynomials.py      needs numpy
"""

import numpy as np


def minimax(values, basis, rounds=400):
    """Coefficients c that make max |values - basis c| small."""
    weight = np.full(len(values), 1.0 / len(values))
    best, best_error = None, np.inf
    for _ in range(rounds):
        root = np.sqrt(weight)
        c, *_ = np.linalg.lstsq(basis * root[:, None], values * root, rcond=None)
        error = np.abs(values - basis @ c)
        if error.max() < best_error:
            best, best_error = c, error.max()
        weight *= error + 1e-3 * error.max()
        weight /= weight.sum()
    return best, best_error


def round_one_by_one(target, scale, low, high, degree):
    """scale(x) turns an error of P at x into the error that counts."""
    x = 0.5 * (low + high) + 0.5 * (high - low) * np.cos(np.linspace(np.pi, 0, 3000))
    fixed = []
    for power in range(degree + 1):
        rest = target(x) - sum(k * x**p for p, k in enumerate(fixed))
        basis = np.stack([x**p for p in range(power, degree + 1)], axis=1)
        c, _ = minimax(rest * scale(x), basis * scale(x)[:, None])
        fixed.append(float(np.float32(c[0])))
    error = scale(x) * (target(x) - sum(k * x**p for p, k in enumerate(fixed)))
    return fixed, np.max(np.abs(error))


def show(name, coefficients, error):
    print(f"{name}: error {error:.3g} = 2^{np.log2(error):.2f}")
    for power, value in enumerate(coefficients):
        print(f"  P[{power}] = {float(value).hex()}  {value:.9g}")


def main():
    ln2 = np.log(2.0)
    show("exp2", *round_one_by_one(lambda f: np.expm1(f * ln2) / f, np.abs, -0.5, 0.5, 5))
    show("log2", *round_one_by_one(lambda t: np.log1p(t) / (t * ln2),
                                   lambda t: t * ln2 / np.log1p(t),
                                   np.sqrt(0.5) - 1, np.sqrt(2.0) - 1, 9))


if __name__ == "__main__":
    main()

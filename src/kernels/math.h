#pragma once
// Our own elementary functions: the model's path calls no libm, so that every machine and every
// instruction set gives the same bits. Inputs and outputs fp32; the scalar versions here are the
// truth, the vector kernels do the same operations in the same order.
// Pure; any thread (with a ScopedFpMode in force).

#include <cstdint>

namespace cleave {

inline constexpr float kLog2E = 1.44269504088896340736F;
inline constexpr float kLn2 = 0.693147180559945309417F;

// 2^x, error at most 1 ulp; 0 below -126, +inf from 128, NaN for NaN. x = n + f with n = rne(x),
// f in [-0.5, 0.5]: a degree-6 polynomial in one fma chain, then n added to the exponent.
float Exp2(float x);
// log2(x) for x > 0; -inf at 0 and at denormals, NaN below. Error at most 2 ulp or 1e-7.
float Log2(float x);
// 1 / (1 + 2^(-x·log2e)) and x / (1 + 2^(-x·log2e)).
float Sigmoid(float x);
float Silu(float x);
// tanh by exp2 and one division, within 2e-7; GELU in its tanh form (Gemma):
// (x·0.5)·(1 + tanh(fma(x³, 0.044715, x)·sqrt(2/pi))), within 4e-7·max(1, |x|).
float Tanh(float x);
float GeluTanh(float x);

// 2^n for -126 <= n <= 127, exactly.
float PowerOfTwo(int n);

// sin and cos of a double angle, by Cody-Waite reduction and polynomials in double: for the rotary
// tables. |angle| up to 2^30.
struct SinCos {
  double sin;
  double cos;
};
SinCos SinCosOf(double angle);
// base^exponent for the rotary frequencies, in double: base > 0.
double PowDouble(double base, double exponent);

}  // namespace cleave

#pragma once
// The elementary functions of math.h on Lanes: the same operations in the same order, so the same
// bits. L is the Lanes of the including source, which keeps every instance inside that source.

#include "kernels/math_constants.h"

namespace cleave {

// 2^x for x in [-126, 128) or NaN; whatever elsewhere.
template <typename L>
inline L Exp2InRange(L x) {
  const L n = L::Round(x);
  const L f = x - n;
  L p = L::Set(math::kExp2[5]);
  p = L::Fma(p, f, L::Set(math::kExp2[4]));
  p = L::Fma(p, f, L::Set(math::kExp2[3]));
  p = L::Fma(p, f, L::Set(math::kExp2[2]));
  p = L::Fma(p, f, L::Set(math::kExp2[1]));
  p = L::Fma(p, f, L::Set(math::kExp2[0]));
  p = L::Fma(p, f, L::Set(1.0F));
  return L::TimesPowerOfTwo(p, n);
}

template <typename L>
inline L Exp2Of(L x) {
  L power = Exp2InRange(x);
  power = L::Select(L::Less(x, L::Set(math::kExp2Lowest)), L::Zero(), power);
  return L::Select(L::AtLeast(x, L::Set(math::kExp2Highest)), L::Set(__builtin_inff()), power);
}

template <typename L>
inline L SiluOf(L x) {
  return x / (L::Set(1.0F) + Exp2Of(x * L::Set(-math::kLog2EFloat)));
}

template <typename L>
inline L TanhOf(L x) {
  const L e = Exp2Of(L::Abs(x) * L::Set(-math::kTwoLog2E));
  const L one = L::Set(1.0F);
  return L::WithSign((one - e) / (one + e), x);
}

template <typename L>
inline L GeluTanhOf(L x) {
  const L cube = (x * x) * x;
  const L inner = L::Fma(cube, L::Set(math::kGeluCubic), x) * L::Set(math::kGeluScale);
  return (x * L::Set(0.5F)) * (L::Set(1.0F) + TanhOf(inner));
}

}  // namespace cleave

#pragma once
// Constants of the elementary functions, shared by the scalar truth (math.cc) and the vector
// kernels (math_lanes.h). Coefficients come from tools/derive_polynomials.py.

namespace cleave::math {

// 2^f = 1 + f·P(f) for f in [-1/2, 1/2], absolute error 3.1e-9, lowest power first.
inline constexpr float kExp2[6] = {0x1.62e43p-1F,  0x1.ebfbep-3F,  0x1.c6af7ap-5F,
                                   0x1.3b2a28p-7F, 0x1.5f096p-10F, 0x1.4447b8p-13F};
// log2(1 + t) = t·P(t) for 1 + t in [sqrt(1/2), sqrt(2)], relative error 1.4e-8.
inline constexpr float kLog2[10] = {
    0x1.715476p+0F,  -0x1.715476p-1F, 0x1.ec720ap-2F,  -0x1.7156c8p-2F, 0x1.273916p-2F,
    -0x1.eb1686p-3F, 0x1.abcbc8p-3F,  -0x1.8bee8ap-3F, 0x1.4e816p-3F,   -0x1.464502p-4F};

// Adding and subtracting 1.5·2^23 rounds a float below 2^22 to the nearest integer, ties to even.
inline constexpr float kRoundFloat = 12582912.0F;
// The same for a double below 2^51: 1.5·2^52.
inline constexpr double kRoundDouble = 6755399441055744.0;

// Where Exp2 leaves the normal numbers.
inline constexpr float kExp2Lowest = -126.0F;
inline constexpr float kExp2Highest = 128.0F;

inline constexpr float kLog2EFloat = 1.44269504088896340736F;
inline constexpr float kTwoLog2E = 2.88539008177792681472F;
inline constexpr float kGeluCubic = 0.044715F;
inline constexpr float kGeluScale = 0.79788456080286535588F;  // sqrt(2/pi)

}  // namespace cleave::math

#pragma once
// Counter-based random numbers: a pure function of who asks and where, so that a replayed request
// draws what it drew before (the sampler's key is seed, prompt index, choice index, position).
//
// The mixer is SplitMix64's finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", OOPSLA 2014), chained once per key word. Not for cryptography. Any thread.

#include <cstdint>

namespace cleave {

constexpr uint64_t MixBits(uint64_t z) {
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31U);
}

__extension__ using Uint128 = unsigned __int128;

struct RngKey {
  uint64_t seed = 0;
  uint64_t prompt_index = 0;
  uint64_t choice_index = 0;
  uint64_t position = 0;
};

// 64 uniform bits for a key.
constexpr uint64_t RandomBits(const RngKey& key) {
  uint64_t z = MixBits(key.seed + 0x9e3779b97f4a7c15ULL);
  z = MixBits(z ^ (key.prompt_index + 0x9e3779b97f4a7c15ULL));
  z = MixBits(z ^ (key.choice_index + 0xd1b54a32d192ed03ULL));
  return MixBits(z ^ (key.position + 0x8cb92ba72f3d8dd7ULL));
}

// A small stream for tests and tie-free seeds: state is one word.
class RngStream {
 public:
  explicit constexpr RngStream(uint64_t seed) : state_(seed) {}
  constexpr uint64_t Next() { return MixBits(state_ += 0x9e3779b97f4a7c15ULL); }
  // Uniform in [0, n), n > 0; the bias is below n / 2^64.
  constexpr uint64_t Below(uint64_t n) {
    return static_cast<uint64_t>((static_cast<Uint128>(Next()) * n) >> 64U);
  }
  // Uniform in [0, 1).
  constexpr double Uniform() { return static_cast<double>(Next() >> 11U) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

}  // namespace cleave

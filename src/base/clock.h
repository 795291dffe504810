#pragma once
// Time as a value. Decisions take times in; only edges read the clock.
// Any thread.

#include <chrono>

namespace cleave {

using SteadyClock = std::chrono::steady_clock;
using TimePoint = SteadyClock::time_point;

inline double SecondsBetween(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace cleave

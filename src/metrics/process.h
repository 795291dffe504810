#pragma once
// Facts of this process as Prometheus clients name them, read from /proc. Any thread; a fact that
// can not be read is 0.

#include <cstddef>

namespace cleave {

struct ProcessFacts {
  double cpu_seconds = 0;
  double start_time_seconds = 0;  // since the epoch
  double resident_bytes = 0;
  double virtual_bytes = 0;
  double open_fds = 0;
  double max_fds = 0;
};

ProcessFacts ReadProcessFacts();

}  // namespace cleave

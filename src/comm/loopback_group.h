#pragma once
// Loopback: a group between threads of one process, by a mutex and a condition variable. It is the
// obviously right implementation that ShmGroup is held equal to, in what arrives and in what is
// metered. Copies and allocates freely; for tests.
//
// Owner: LoopbackHub outlives its members. Threads: each member one, the hub any.

#include <memory>

#include "comm/group.h"

namespace cleave {

struct LoopbackOptions {
  uint32_t size = 2;
  Axis axis = Axis::kTp;
  uint32_t deadline_ms = 3000;  // of every wait, whatever the others do
  uint64_t one_shot_max_bytes = 16384;
};

class LoopbackHub {
 public:
  explicit LoopbackHub(const LoopbackOptions& options);
  ~LoopbackHub();
  LoopbackHub(const LoopbackHub&) = delete;
  LoopbackHub& operator=(const LoopbackHub&) = delete;

  std::unique_ptr<Group> Member(uint32_t rank);
  void End(std::string reason);

 private:
  friend class LoopbackGroup;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cleave

#pragma once
// The flags of cleave bench kernels. Main thread; fails with kInvalidArgument naming the flag.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/kernel_speed.h"
#include "bench/op_speed.h"
#include "cli/option_table.h"

namespace cleave {

struct KernelFlags {
  std::string types;  // empty: all that fit the shape
  std::string shape = "1536x576";
  std::string rows = "1,4,12,32,512";
  std::string isa = "auto";
  std::string sum = "column";
  int64_t threads = 1;
  int64_t bytes = int64_t{256} << 20U;
  int64_t repeats = 5;
  bool cached = false;
  bool others = false;
  bool json = false;

  void AddTo(OptionTable* table);
  // Of --others.
  [[nodiscard]] Result<OpOptions> Others() const;
  // One for each type, in the order asked for.
  [[nodiscard]] Result<std::vector<ProductOptions>> Products() const;

 private:
  [[nodiscard]] Result<std::vector<int>> Cpus() const;
};

}  // namespace cleave

#pragma once
// TensorView: where a stored tensor lies, without owning it. Shapes are outermost first, as
// Hugging Face writes them: a weight of out features and in features is [out, in].
// Whoever gives one away keeps the bytes alive. Any thread.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/dtype.h"

namespace cleave {

struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;  // outermost first

  [[nodiscard]] uint64_t rows() const {
    uint64_t n = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
    return n;
  }
  [[nodiscard]] uint64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  [[nodiscard]] uint64_t elements() const { return rows() * cols(); }
};

}  // namespace cleave

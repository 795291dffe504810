#pragma once
// Perplexity of a text: how surprised the model is, for comparing formats and engines.
//
// The text is cut into separate windows of `context` tokens; the second half of each (its last
// context/2 - 1 tokens) is scored, as llama.cpp's perplexity tool scores. No BOS is added between
// windows.
// Main thread. Fails with kInvalidArgument when the text is shorter than one window.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/executor.h"

namespace cleave {

struct PerplexityResult {
  double perplexity = 0;
  std::vector<double> window_perplexity;
  uint64_t scored_tokens = 0;
};

struct PerplexityOptions {
  uint32_t context = 512;
  uint32_t max_windows = 0;  // 0 = all whole windows
  uint32_t block_tokens = 16;
};

// `on_window` is called after each with how many are done, of how many, and the perplexity so far.
using OnWindow = std::function<void(size_t done, size_t windows, double so_far)>;

Result<PerplexityResult> MeasurePerplexity(Executor* executor, std::span<const int32_t> tokens,
                                           const PerplexityOptions& options,
                                           const OnWindow& on_window);

}  // namespace cleave

#include "engine/forward/row_share.h"

#include <span>

namespace cleave {

Status RowShare::Gather(uint32_t tokens, uint32_t width, float* rows) {
  const Split& split = context_.layout->split;
  const size_t row_bytes = width * sizeof(float);
  for (uint32_t member = 0; member < sizes_.size(); ++member) {
    sizes_[member] = CpRowsOf(split, member, tokens).size() * row_bytes;
  }
  const Range own = CpRowsOf(split, context_.mine().coord.cp, tokens);
  const std::span<const float> mine(rows + static_cast<size_t>(own.begin) * width,
                                    static_cast<size_t>(own.size()) * width);
  return context_.comm.cp->AllGather(std::as_bytes(mine), sizes_,
                                     reinterpret_cast<std::byte*>(rows));
}

}  // namespace cleave

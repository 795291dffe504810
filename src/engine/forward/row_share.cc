#include "engine/forward/row_share.h"

namespace cleave {

RowShare::RowShare(const RankContext& context, Axis axis)
    : context_(context),
      axis_(axis),
      me_(axis == Axis::kTp ? context.mine().coord.tp : context.mine().coord.cp),
      parts_(axis == Axis::kTp ? context.layout->split.tp : context.layout->split.cp),
      sizes_(parts_.size()) {}

bool RowShare::Shares(uint32_t rows) const {
  const Split& split = context_.layout->split;
  return axis_ == Axis::kTp ? TpSharesRows(split, rows) : CpSharesRows(split, rows);
}

Range RowShare::PartOf(uint32_t member, uint32_t rows) const {
  const Split& split = context_.layout->split;
  return axis_ == Axis::kTp ? TpRowsOf(split, member, rows) : CpRowsOf(split, member, rows);
}

std::span<const Range> RowShare::PartsOf(uint32_t rows) {
  for (uint32_t member = 0; member < parts_.size(); ++member) parts_[member] = PartOf(member, rows);
  return parts_;
}

Status RowShare::Gather(uint32_t rows, uint32_t width, float* data) {
  const size_t row_bytes = width * sizeof(float);
  for (uint32_t member = 0; member < sizes_.size(); ++member) {
    sizes_[member] = PartOf(member, rows).size() * row_bytes;
  }
  const Range own = OwnOf(rows);
  const std::span<const float> mine(data + static_cast<size_t>(own.begin) * width,
                                    static_cast<size_t>(own.size()) * width);
  Group* group = axis_ == Axis::kTp ? context_.comm.tp : context_.comm.cp;
  return group->AllGather(std::as_bytes(mine), sizes_, reinterpret_cast<std::byte*>(data));
}

}  // namespace cleave

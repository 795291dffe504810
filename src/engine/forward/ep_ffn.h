#pragma once
// EpFfn: the second half of a layer whose experts lie whole on the ranks of the ep group (or their
// columns on a few of them).
//
//   own rows: h = norm(x), routed        x is the same on a team's ranks: each owns an even share
//   all_gather   experts, gates and quanta of all rows of all teams
//   all_to_all   h to the ranks that hold its experts: int8 or bf16 as their kernels take it
//                (kernels/act_wire.h), else fp32
//   totals       of what arrived (expert_block.h)
//   all_to_all   one flag a total: int32 or int64; then the totals, back to the owners
//   all_gather   float(Σ)·quantum of the team's rows; x += it
// The integers are those of a rank that holds everything, so are the bits (docs/arithmetic.md).

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/row_codec.h"
#include "engine/forward/ep_routes.h"
#include "engine/forward/expert_block.h"
#include "engine/forward/ffn.h"
#include "engine/forward/router.h"
#include "split/traffic.h"

namespace cleave {

class EpFfn final : public Ffn {
 public:
  // `sum`: where totals are made; its reductions are not used.
  EpFfn(const RankContext& context, RowStages* stages, RowSum* sum);
  void Plan(const StepRows& step) override;
  void Run(uint32_t layer, uint32_t rows, float* x, uint32_t thread) override;
  [[nodiscard]] Status status() const override { return status_; }
  [[nodiscard]] std::span<const uint64_t> expert_tokens() const override { return tokens_; }
  [[nodiscard]] EpCounts ep_counts() const override { return counts_; }

 private:
  // The next total that a member returned.
  struct Cursor {
    size_t row = 0;   // of the rows it got
    size_t flag = 0;  // in flags_
    size_t byte = 0;  // in receive_
  };

  // Own rows to the experts' ranks, and totals back: all threads; thread 0 speaks to other ranks.
  void SendOut(uint32_t layer, const RowStages::Stage& stage, uint32_t thread);
  void Return(uint32_t thread);

  // On thread 0.
  Status ShareRoutes(uint32_t layer, const RowStages::Stage& stage);
  Status Dispatch(uint32_t layer);
  void Assign();
  Status ReturnFlags();
  void PlaceTotals();
  Status ReturnTotals();
  void PlaceParts();
  Status GatherRows();

  // This thread's share of own rows as they go out; of what arrived, as the experts here take it;
  // of the totals that go back; of own rows' sums.
  void PackRows(uint32_t layer, const RowStages::Stage& stage, uint32_t thread);
  void Receive(uint32_t layer, uint32_t thread);
  void PackTotals(uint32_t thread);
  void SumOwned(uint32_t thread);

  [[nodiscard]] uint64_t TotalBytes(uint8_t wide) const;

  const RankContext& context_;
  RowSum* const sum_;
  Group* const team_;  // whom the sums of own rows are for; null: this rank alone
  EpRoutes routes_;
  Range rows_;  // of the team, in the step
  Router router_;
  ExpertBlock experts_;
  const size_t blocks_;           // of a prepared row of D
  std::vector<RowWire> wire_of_;  // [layers]
  const size_t route_bytes_;
  Status status_;
  EpCounts counts_;
  std::vector<uint64_t> tokens_;   // [E]
  const bool counts_tokens_;       // the first of an ep rank's ranks does
  std::vector<uint32_t> slot_of_;  // [E] as ExpertBlock counts

  // Of all rows of the step, all teams'.
  std::vector<uint32_t> chosen_;  // [T, k]
  std::vector<float> gates_;      // [T, k]
  std::vector<int32_t> shift_;    // [T]
  std::vector<std::byte> route_;  // [T] on the wire
  std::vector<std::byte> my_route_;
  std::vector<float> y_;      // [rows of the team, D]
  std::vector<float> own_y_;  // [own rows, D], where there are others' in the team

  // Of the rows that arrived.
  ExpertBlock::Inputs arrived_;
  std::vector<uint32_t> arrived_chosen_;
  std::vector<float> arrived_gates_;
  std::vector<int32_t> arrived_shift_;

  std::vector<int64_t> zeros_;  // [D]
  std::vector<uint8_t> flags_;  // of own rows, by the member that made the total
  std::vector<std::byte> send_;
  std::vector<std::byte> receive_;
  std::vector<uint64_t> send_sizes_;     // [members]
  std::vector<uint64_t> receive_sizes_;  // [members]
  std::vector<uint64_t> team_sizes_;     // [ranks of the team]
  std::vector<Cursor> next_;             // [members]
  std::vector<size_t> total_at_;         // [arrived rows] in send_
  std::vector<PeerRow> parts_;           // of own rows, one after the other
  std::vector<size_t> first_part_;       // [own rows + 1]
};

}  // namespace cleave

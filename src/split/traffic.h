#pragma once
// Traffic: every collective of a step, with its bytes, as a pure function of layout and counts. The
// runtime meters the same operations (comm/stats.h); bill.exact holds the two equal.
//
// Bytes are payload: what a rank hands over for others to read, counted once however many read it.
// A group of one exchanges nothing and counts no call. T tokens of the rank's team (split.h; a team
// without any takes part in ep alone), D hidden size, V vocabulary.
//
//   tp all_reduce      two a layer, after attention and after the FFN (one where ep > 1), of T rows
//   of D integer sums.
//                      A row is one byte for the flag that says which, and D · 4 bytes, or D · 8
//                      where its sums escaped to int64 on this rank ("wide"). One-shot, while
//                      T · (1 + D · 4) is at most one_shot_max_bytes: all of it. T is the rank's
//                      own rows where cp shares them out (CpRowsOf).
//      reduce_scatter  Past that: rank i of n owns columns EvenShare(D, n, i); it hands over the
//                      flags and the others' columns: T · 1 + (D - own) · (4 or 8) a row,
//      all_gather      then the sums of its own as fp32: T · own · 4.
//   tp, rows shared    In place of these where TpSharesRows: a rank norms and adds up its own rows
//   (TpRowsOf).
//      all_gather      two a layer, of own rows, normed: the exponent of the quantum (1 byte), and
//                      the row as the matrices take it (RowWireBytes; once a term); once a step,
//                      at the end of the stage's layers, the residual rows: own · D · 4.
//      reduce_scatter  two a layer: flags and sums of the others' rows.
//   tp all_gather      On the first stage, one a step: D · 4 for each row of the embedding that
//                      this rank holds. On cp 0 of the last stage, for each group of results that
//                      has greedy rows, one: the best logit of this rank's vocabulary (fp32) and
//                      its token (int32), 8 bytes a row; and for each that has full rows, one: this
//                      rank's vocabulary in fp32, V/n · 4 a row.
//   pp send            T · D · 4 from each rank to the one of the next stage with the same tp and
//                      cp place; and from tp 0, cp 0 of the last stage to that of the first, the
//                      results: one for each group that has greedy rows, 8 bytes a row, and one a
//                      full row, V · 4.
//   ep all_gather      two a layer. A team's R ranks own EvenShare(T, R, i) rows each: of own rows
//                      the k experts (2 bytes) and gates (fp32) and the exponent (1 byte), to all
//                      ranks of the stage; and, at the end, to the team, if it has rows and more
//                      than one rank, the rows added up, D · 4.
//      all_to_all      three a layer: own rows to each other rank that computes any of their
//                      experts, as its kernels take them (RowWireBytes); then, of totals that are
//                      not of own rows, a flag each, and D · 4 or, wide, D · 8.
//      send            On the last stage, from tp 0, cp 0 of every team but the first to that of
//                      the first, the team's results, as they go over pp, which takes those of all
//                      teams from there.
//   cp                 of H query and G KV heads of d on this rank, each layer:
//      all_gather      where rows are shared out (R of them here): q, k and v, in three calls,
//                      R · (H + 2 · G) · d · 4. With dcp, q of all rows, T · H · d · 4.
//                      What the partial attentions are, 4 bytes each: with dcp T · (heads of the
//                      dcp group), with cp T · H. Where rows are not shared out, then the partials
//                      over cp: of each bin that counts, d + 1 integers of 8 bytes, or 16 (wide).
//                      Shared rows, once a step, or with ep after every attention: R · D · 4.
//      all_to_all      with dcp the partials of other ranks' heads; with cp, where rows are shared
//                      out, those of other ranks' rows. Bins as above.
//
// vLLM, as it is at this date: all_reduce of T · D bf16, two a layer and one for the embedding; the
// residual travels beside the hidden rows, both in bf16 and sliced over tp where tp divides T · D,
// then gathered by the receiver; logits of every sampled row are gathered in bf16, the vocabulary
// padded to 64. Its results go by its own queue and are not counted; nor is what its context
// parallelism exchanges (IsWhollyPriced).
//
// Any thread.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "split/layout.h"

namespace cleave {

enum class CommOp : uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kSend };
inline constexpr uint32_t kCommOps = 5;
// "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send".
const char* CommOpName(CommOp op);

// Element widths and algorithms of the engine that is priced.
enum class Dialect : uint8_t { kCleave, kVllm };

// How a normed row of D elements goes to another rank: blocks of 32 int8 with an fp32 scale each,
// blocks of 32 bf16, or D fp32.
enum class RowWire : uint8_t { kInt8, kBf16, kFloat };
inline constexpr uint32_t kRowWires = 3;
uint64_t RowWireBytes(RowWire wire, uint64_t hidden_size);

// Rows by how they go.
using WireCounts = std::array<uint64_t, kRowWires>;

// How a layer's matrices take their rows, which is how these go from rank to rank.
struct LayerWires {
  RowWire attention = RowWire::kFloat;  // normed, into Q, K and V
  RowWire ffn = RowWire::kFloat;        // normed, into gate and up; with experts the router too
  RowWire experts = RowWire::kFloat;    // to the rank of an expert
};

// What a rank handed to others over ep, over all layers.
struct EpCounts {
  WireCounts rows_sent{};      // to the ranks of their experts
  uint64_t rows_returned = 0;  // totals
  uint64_t wide_returned = 0;  // of these, as int64
  bool operator==(const EpCounts&) const = default;
};
EpCounts operator-(const EpCounts& a, const EpCounts& b);

// What a rank handed to others of partial attentions, over all layers.
struct CpCounts {
  struct Bins {
    uint64_t narrow = 0;
    uint64_t wide = 0;
    bool operator==(const Bins&) const = default;
  };
  Bins gathered = {};    // to all of them
  uint64_t gathers = 0;  // in so many calls
  Bins exchanged = {};   // to the ranks of their heads or rows
  bool operator==(const CpCounts&) const = default;
};
CpCounts operator-(const CpCounts& a, const CpCounts& b);

// What a step did, on one rank. All but wide_rows, normed_rows, ep and cp follow from its plan;
// those are reported.
struct StepCounts {
  // Of the rank's team.
  uint32_t tokens = 0;         // rows of the batch
  uint32_t greedy_rows = 0;    // sampled by their highest logit alone
  uint32_t greedy_groups = 0;  // groups of results that have such rows
  uint32_t full_rows = 0;      // whose logits rank 0 reads whole
  uint32_t full_groups = 0;
  uint32_t embedded_tokens = 0;  // whose embedding row this rank holds
  // Rows that went into a tp reduction as int64, over all layers; of shared rows, the others'.
  uint64_t wide_rows = 0;
  WireCounts normed_rows{};  // own rows that went to the tp group, over all layers and terms
  EpCounts ep = {};
  CpCounts cp = {};
  // Of the other teams, all together.
  struct Others {
    uint32_t tokens = 0;
    uint32_t greedy_rows = 0;
    uint32_t greedy_groups = 0;  // that have no such rows of the rank's team
    uint32_t full_rows = 0;
  };
  Others others = {};
};

struct Transfer {
  Axis axis = Axis::kTp;
  CommOp op = CommOp::kAllReduce;
  uint64_t calls = 0;
  uint64_t bytes = 0;
  bool operator==(const Transfer&) const = default;
};

struct TrafficOptions {
  Dialect dialect = Dialect::kCleave;
  // Reductions of at most so many payload bytes (rows narrow) go in one shot.
  uint64_t one_shot_max_bytes = 0;
};

// Normed rows of a step that the rank hands to its tp group. `wires`: of the model's layers; empty:
// all take floats.
WireCounts ExpectedNormedRows(const Layout& layout, uint32_t rank, uint32_t tokens,
                              std::span<const LayerWires> wires);
// Its rows that go into reductions, over all layers.
uint64_t ReducedRows(const Layout& layout, uint32_t rank, uint32_t tokens);
// What is to be expected of a step of so many tokens, which go to all experts alike.
EpCounts ExpectedEpCounts(const Layout& layout, uint32_t rank, const StepCounts& step,
                          std::span<const LayerWires> wires);
// Likewise of the team's tokens, in one bin of 64 bits. A prefill's rows are the positions from 0
// on: a rank has partials of those that see a run of its own. Any other step's see one on every
// rank.
enum class StepKind : uint8_t { kDecode, kPrefill };
CpCounts ExpectedCpCounts(const Layout& layout, uint32_t rank, uint32_t tokens, StepKind kind);

// Calls and bytes by axis and operation: a bill that steps are added to.
class TrafficTotals {
 public:
  struct Entry {
    uint64_t calls = 0;
    uint64_t bytes = 0;
    bool operator==(const Entry&) const = default;
  };
  void Add(Axis axis, CommOp op, uint64_t calls, uint64_t bytes) {
    Entry& entry = At(axis, op);
    entry.calls += calls;
    entry.bytes += bytes;
  }
  void Add(const TrafficTotals& other);
  [[nodiscard]] const Entry& of(Axis axis, CommOp op) const {
    return entries_[static_cast<uint32_t>(axis) * kCommOps + static_cast<uint32_t>(op)];
  }
  // Entries with calls, by axis, then operation.
  [[nodiscard]] std::vector<Transfer> List() const;
  bool operator==(const TrafficTotals&) const = default;

 private:
  Entry& At(Axis axis, CommOp op) {
    return entries_[static_cast<uint32_t>(axis) * kCommOps + static_cast<uint32_t>(op)];
  }
  std::array<Entry, kAxes * kCommOps> entries_;
};

// How reductions of `rows` rows of `columns` sums go; the runtime chooses by the same function.
bool IsOneShot(uint64_t rows, uint64_t columns, const TrafficOptions& options);

// What rank `rank` of the layout hands over in the step; one entry an (axis, op) with calls > 0.
std::vector<Transfer> TrafficOfStep(const Layout& layout, uint32_t rank, const StepCounts& counts,
                                    const TrafficOptions& options);
// The same, added to `totals`; allocates nothing. A rank the layout does not have adds nothing.
// Additive: the parts of a step may be added one by one, its tokens and its results.
void AddTrafficOfStep(const Layout& layout, uint32_t rank, const StepCounts& counts,
                      const TrafficOptions& options, TrafficTotals* totals);

// Whether all that the split's ranks exchange is counted: not in vLLM's cp or dcp.
bool IsWhollyPriced(const Split& split, Dialect dialect);

}  // namespace cleave

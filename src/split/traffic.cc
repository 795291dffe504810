#include "split/traffic.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"

namespace cleave {
namespace {

constexpr uint64_t kFlagBytes = 1;
constexpr uint64_t kNarrowBytes = 4;       // an int32 sum
constexpr uint64_t kWideExtraBytes = 4;    // an int64 one takes these more
constexpr uint64_t kFloatBytes = 4;        // residual rows, embedding rows, logits
constexpr uint64_t kCandidateBytes = 8;    // fp32 logit, int32 token
constexpr uint64_t kReductionsALayer = 2;  // after attention, after the FFN
constexpr uint64_t kExpertBytes = 2;       // which
constexpr uint64_t kExponentBytes = 1;     // of a row's quantum
constexpr uint64_t kWireBlock = 32;        // elements
constexpr uint64_t kAttentionTerms = 2;    // of int8 rows into V
constexpr uint64_t kBf16Bytes = 2;
constexpr uint64_t kPartialCodeBytes = 4;  // what a partial attention is
constexpr uint64_t kBinBytes = 8;          // an integer of a bin, narrow
constexpr uint64_t kVllmPpTensors = 2;     // hidden rows and residual
constexpr uint32_t kVllmVocabPad = 64;

// One step of one rank on its way into the bill.
struct Step {
  const Layout& layout;
  const RankLayout& rank;
  const StepCounts& counts;
  const TrafficOptions& options;
  TrafficTotals* totals;

  [[nodiscard]] uint64_t hidden() const { return layout.shape.hidden_size; }
  // The rows that this rank computes.
  [[nodiscard]] uint64_t rows() const {
    return CpRowsOf(layout.split, rank.coord.cp, counts.tokens).size();
  }
};

uint64_t WireBytes(const Step& step, const WireCounts& rows) {
  uint64_t bytes = 0;
  for (uint32_t wire = 0; wire < kRowWires; ++wire) {
    bytes += rows[wire] * RowWireBytes(static_cast<RowWire>(wire), step.hidden());
  }
  return bytes;
}

uint32_t IndexOf(RowWire wire) { return static_cast<uint32_t>(wire); }

LayerWires WiresOf(std::span<const LayerWires> wires, uint32_t layer) {
  return wires.empty() ? LayerWires() : wires[layer];
}

// Two a layer, of rows that the ranks share out.
void AddSharedRows(const Step& step) {
  const uint64_t calls = kReductionsALayer * step.rank.layers.size();
  const uint64_t own =
      TpRowsOf(step.layout.split, step.rank.coord.tp, static_cast<uint32_t>(step.rows())).size();
  const uint64_t others = calls * (step.rows() - own);
  step.totals->Add(
      Axis::kTp, CommOp::kReduceScatter, calls,
      others * kFlagBytes +
          (others * kNarrowBytes + step.counts.wide_rows * kWideExtraBytes) * step.hidden());
  step.totals->Add(Axis::kTp, CommOp::kAllGather, calls + 1,
                   calls * own * kExponentBytes + WireBytes(step, step.counts.normed_rows) +
                       own * step.hidden() * kFloatBytes);
}

void AddReductions(const Step& step) {
  const uint64_t halves = step.layout.split.ep > 1 ? 1 : kReductionsALayer;
  const uint64_t calls = halves * step.rank.layers.size();
  const uint64_t rows = step.rows();
  if (TpSharesRows(step.layout.split, static_cast<uint32_t>(rows))) return AddSharedRows(step);
  const uint64_t flags = calls * rows * kFlagBytes;
  const uint64_t wide = step.counts.wide_rows;
  if (IsOneShot(rows, step.hidden(), step.options)) {
    step.totals->Add(
        Axis::kTp, CommOp::kAllReduce, calls,
        flags + (calls * rows * kNarrowBytes + wide * kWideExtraBytes) * step.hidden());
    return;
  }
  const uint64_t own =
      EvenShare(step.layout.shape.hidden_size, step.layout.split.tp, step.rank.coord.tp).size();
  step.totals->Add(
      Axis::kTp, CommOp::kReduceScatter, calls,
      flags + (calls * rows * kNarrowBytes + wide * kWideExtraBytes) * (step.hidden() - own));
  step.totals->Add(Axis::kTp, CommOp::kAllGather, calls, calls * rows * own * kFloatBytes);
}

void AddTp(const Step& step) {
  const StepCounts& counts = step.counts;
  if (counts.tokens > 0) {
    AddReductions(step);
    if (step.rank.first_stage) {
      step.totals->Add(Axis::kTp, CommOp::kAllGather, 1,
                       counts.embedded_tokens * step.hidden() * kFloatBytes);
    }
  }
  if (!step.rank.has_head()) return;
  step.totals->Add(Axis::kTp, CommOp::kAllGather,
                   uint64_t{counts.greedy_groups} + counts.full_groups,
                   counts.greedy_rows * kCandidateBytes +
                       uint64_t{counts.full_rows} * step.rank.vocab_rows.size() * kFloatBytes);
}

// Results on their way from one rank to another, over `axis`.
void AddResults(Axis axis, uint64_t greedy_groups, uint64_t greedy_rows, uint64_t full_rows,
                const Step& step) {
  step.totals->Add(
      axis, CommOp::kSend, greedy_groups + full_rows,
      greedy_rows * kCandidateBytes + full_rows * step.layout.shape.vocab_size * kFloatBytes);
}

void AddPp(const Step& step) {
  const StepCounts& counts = step.counts;
  if (!step.rank.last_stage) {
    if (counts.tokens == 0) return;
    step.totals->Add(Axis::kPp, CommOp::kSend, 1, counts.tokens * step.hidden() * kFloatBytes);
    return;
  }
  if (PlaceInStage(step.layout.split, step.rank.coord) != 0) return;
  const StepCounts::Others& others = counts.others;
  AddResults(Axis::kPp, uint64_t{counts.greedy_groups} + others.greedy_groups,
             uint64_t{counts.greedy_rows} + others.greedy_rows,
             uint64_t{counts.full_rows} + others.full_rows, step);
}

// Rows of its team that the rank owns under ep.
uint32_t EpRowsOf(const Split& split, const RankCoord& coord, uint32_t tokens) {
  return EvenShare(tokens, split.ranks_per_team(), PlaceInTeam(split, coord)).size();
}

void AddEpResults(const Step& step) {
  const RankCoord& at = step.rank.coord;
  if (!step.rank.last_stage || at.team == 0) return;
  if (PlaceInTeam(step.layout.split, at) != 0) return;
  const StepCounts& counts = step.counts;
  AddResults(Axis::kEp, counts.greedy_groups, counts.greedy_rows, counts.full_rows, step);
}

void AddEp(const Step& step) {
  AddEpResults(step);
  if (step.counts.tokens + step.counts.others.tokens == 0) return;
  const Split& split = step.layout.split;
  const uint64_t layers = step.rank.layers.size();
  const uint64_t own = EpRowsOf(split, step.rank.coord, step.counts.tokens);
  const uint64_t route =
      step.layout.shape.experts_per_token * (kExpertBytes + kFloatBytes) + kExponentBytes;
  step.totals->Add(Axis::kEp, CommOp::kAllGather, layers, layers * own * route);
  if (split.ranks_per_team() > 1 && step.counts.tokens > 0) {
    step.totals->Add(Axis::kEp, CommOp::kAllGather, layers,
                     layers * own * step.hidden() * kFloatBytes);
  }
  const EpCounts& counts = step.counts.ep;
  const uint64_t bytes = counts.rows_returned * (kFlagBytes + step.hidden() * kNarrowBytes) +
                         counts.wide_returned * step.hidden() * kWideExtraBytes +
                         WireBytes(step, counts.rows_sent);
  step.totals->Add(Axis::kEp, CommOp::kAllToAll, 3 * layers, bytes);
}

uint64_t BinBytes(const Step& step, const CpCounts::Bins& bins) {
  return (bins.narrow + 2 * bins.wide) * (step.layout.shape.head_dim + 1) * kBinBytes;
}

// What every layer gathers over cp and dcp, of sizes that the plan tells.
void AddCpGathers(const Step& step) {
  const Split& split = step.layout.split;
  const uint64_t tokens = step.counts.tokens;
  const uint64_t layers = step.rank.layers.size();
  const uint64_t heads = step.rank.q_heads.size();
  const uint64_t head_bytes = step.layout.shape.head_dim * kFloatBytes;
  const auto add = [&](uint64_t calls, uint64_t bytes) {
    step.totals->Add(Axis::kCp, CommOp::kAllGather, layers * calls, layers * bytes);
  };
  if (split.dcp > 1) {
    const uint64_t group_heads = step.layout.DcpQueries(step.rank.coord).size();
    add(2, tokens * (heads * head_bytes + group_heads * kPartialCodeBytes));
  }
  if (split.cp > 1) add(1, tokens * heads * kPartialCodeBytes);
  if (!CpSharesRows(split, step.counts.tokens)) return;
  add(3, step.rows() * (heads + uint64_t{2} * step.rank.kv_heads.size()) * head_bytes);
  const uint64_t calls = split.ep > 1 ? layers : 1;
  step.totals->Add(Axis::kCp, CommOp::kAllGather, calls,
                   calls * step.rows() * step.hidden() * kFloatBytes);
}

void AddCp(const Step& step) {
  if (step.counts.tokens == 0) return;
  AddCpGathers(step);
  const CpCounts& counts = step.counts.cp;
  step.totals->Add(Axis::kCp, CommOp::kAllGather, counts.gathers, BinBytes(step, counts.gathered));
  const bool shared = CpSharesRows(step.layout.split, step.counts.tokens);
  const uint64_t calls = (step.layout.split.dcp > 1 ? 1U : 0U) + (shared ? 1U : 0U);
  step.totals->Add(Axis::kCp, CommOp::kAllToAll, calls * step.rank.layers.size(),
                   BinBytes(step, counts.exchanged));
}

// The chance that a token goes to any of `held` experts, of which some may be taken for a part of
// the tokens only.
double ChanceOfAny(const ModelShape& shape, double held) {
  double none = 1;
  for (uint32_t i = 0; i < shape.experts_per_token; ++i) {
    const double left = shape.num_experts - static_cast<double>(i);
    none *= std::max(0.0, (left - held) / left);
  }
  return 1 - none;
}

void AddVllmTp(const Step& step) {
  const uint64_t tokens = step.counts.tokens;
  const uint64_t sampled = uint64_t{step.counts.greedy_rows} + step.counts.full_rows;
  const uint64_t calls =
      kReductionsALayer * step.rank.layers.size() + (step.rank.first_stage ? 1 : 0);
  if (tokens > 0) {
    step.totals->Add(Axis::kTp, CommOp::kAllReduce, calls,
                     calls * tokens * step.hidden() * kBf16Bytes);
  }
  if (!step.rank.last_stage || sampled == 0) return;
  const uint64_t slice = CeilDiv<uint64_t>(
      RoundUp<uint64_t>(step.layout.shape.vocab_size, kVllmVocabPad), step.layout.split.tp);
  step.totals->Add(Axis::kTp, CommOp::kAllGather, 1, sampled * slice * kBf16Bytes);
}

void AddVllmPp(const Step& step) {
  const uint64_t elements = step.counts.tokens * step.hidden();
  if (elements == 0) return;
  const uint64_t tp = step.layout.split.tp;
  const bool sliced = tp > 1 && elements % tp == 0;
  const uint64_t bytes = kVllmPpTensors * (sliced ? elements / tp : elements) * kBf16Bytes;
  if (!step.rank.last_stage) step.totals->Add(Axis::kPp, CommOp::kSend, kVllmPpTensors, bytes);
  if (!step.rank.first_stage && sliced) {
    step.totals->Add(Axis::kTp, CommOp::kAllGather, kVllmPpTensors, bytes);
  }
}

}  // namespace

const char* CommOpName(CommOp op) {
  switch (op) {
    case CommOp::kAllReduce:
      return "all_reduce";
    case CommOp::kAllGather:
      return "all_gather";
    case CommOp::kReduceScatter:
      return "reduce_scatter";
    case CommOp::kAllToAll:
      return "all_to_all";
    case CommOp::kSend:
      return "send";
  }
  return "?";
}

uint64_t RowWireBytes(RowWire wire, uint64_t hidden_size) {
  const uint64_t blocks = CeilDiv<uint64_t>(hidden_size, kWireBlock);
  switch (wire) {
    case RowWire::kInt8:
      return blocks * (kWireBlock + kFloatBytes);
    case RowWire::kBf16:
      return blocks * kWireBlock * kBf16Bytes;
    case RowWire::kFloat:
      break;
  }
  return hidden_size * kFloatBytes;
}

EpCounts operator-(const EpCounts& a, const EpCounts& b) {
  EpCounts left = a;
  for (uint32_t wire = 0; wire < kRowWires; ++wire) left.rows_sent[wire] -= b.rows_sent[wire];
  left.rows_returned -= b.rows_returned;
  left.wide_returned -= b.wide_returned;
  return left;
}

WireCounts ExpectedNormedRows(const Layout& layout, uint32_t rank, uint32_t tokens,
                              std::span<const LayerWires> wires) {
  WireCounts counts{};
  const RankLayout& mine = layout.ranks[rank];
  const uint32_t rows = CpRowsOf(layout.split, mine.coord.cp, tokens).size();
  if (!TpSharesRows(layout.split, rows)) return counts;
  const uint64_t own = TpRowsOf(layout.split, mine.coord.tp, rows).size();
  for (uint32_t layer = mine.layers.begin; layer < mine.layers.end; ++layer) {
    const LayerWires of = WiresOf(wires, layer);
    counts[IndexOf(of.attention)] += of.attention == RowWire::kInt8 ? kAttentionTerms * own : own;
    counts[IndexOf(of.ffn)] += own;
  }
  return counts;
}

uint64_t ReducedRows(const Layout& layout, uint32_t rank, uint32_t tokens) {
  const RankLayout& mine = layout.ranks[rank];
  const uint32_t rows = CpRowsOf(layout.split, mine.coord.cp, tokens).size();
  const bool shared = TpSharesRows(layout.split, rows);
  const uint32_t own = shared ? TpRowsOf(layout.split, mine.coord.tp, rows).size() : 0;
  return kReductionsALayer * mine.layers.size() * (rows - own);
}

EpCounts ExpectedEpCounts(const Layout& layout, uint32_t rank, const StepCounts& step,
                          std::span<const LayerWires> wires) {
  EpCounts counts;
  if (layout.split.ep == 1) return counts;
  const RankLayout& mine = layout.ranks[rank];
  const double own = EpRowsOf(layout.split, mine.coord, step.tokens);
  const double all = static_cast<double>(step.tokens) + step.others.tokens;
  const auto held_by = [&](const RankLayout& r) {
    return layout.ExpertsComputedBy(ExpertPlaceOf(layout.split, r.coord).ep_rank);
  };
  double sent = 0;
  for (const RankLayout& other : layout.ranks) {
    if (other.coord.pp != mine.coord.pp || other.rank == rank) continue;
    sent += own * ChanceOfAny(layout.shape, held_by(other));
  }
  const double returned = (all - own) * ChanceOfAny(layout.shape, held_by(mine));
  const double layers = mine.layers.size();
  WireCounts layers_by{};
  for (uint32_t layer = mine.layers.begin; layer < mine.layers.end; ++layer) {
    ++layers_by[IndexOf(WiresOf(wires, layer).experts)];
  }
  for (uint32_t wire = 0; wire < kRowWires; ++wire) {
    counts.rows_sent[wire] =
        static_cast<uint64_t>(std::llround(sent * static_cast<double>(layers_by[wire])));
  }
  counts.rows_returned = static_cast<uint64_t>(std::llround(returned * layers));
  return counts;
}

CpCounts operator-(const CpCounts& a, const CpCounts& b) {
  const auto less = [](const CpCounts::Bins& x, const CpCounts::Bins& y) {
    return CpCounts::Bins{.narrow = x.narrow - y.narrow, .wide = x.wide - y.wide};
  };
  return {.gathered = less(a.gathered, b.gathered),
          .gathers = a.gathers - b.gathers,
          .exchanged = less(a.exchanged, b.exchanged)};
}

CpCounts ExpectedCpCounts(const Layout& layout, uint32_t rank, uint32_t tokens, StepKind kind) {
  const RankLayout& mine = layout.ranks[rank];
  const Split& split = layout.split;
  const uint64_t layers = mine.layers.size();
  const uint64_t heads = mine.q_heads.size();
  // Rows that see a run of this rank.
  Range seeing{0, tokens};
  if (kind == StepKind::kPrefill) {
    seeing.begin = std::min(KvPartitionOf(split, mine.coord) * kRunPositions, tokens);
  }
  CpCounts counts;
  if (split.dcp > 1) {
    const uint64_t others = layout.DcpQueries(mine.coord).size() - heads;
    counts.exchanged.narrow += layers * seeing.size() * others;
  }
  if (CpSharesRows(split, tokens)) {
    const Range own = CpRowsOf(split, mine.coord.cp, tokens);
    const uint32_t own_seeing = own.end - std::clamp(seeing.begin, own.begin, own.end);
    counts.exchanged.narrow += layers * (seeing.size() - own_seeing) * heads;
  } else if (split.cp > 1 && tokens > 0) {
    counts.gathered.narrow = layers * seeing.size() * heads;
    counts.gathers = layers;
  }
  return counts;
}

void TrafficTotals::Add(const TrafficTotals& other) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    entries_[i].calls += other.entries_[i].calls;
    entries_[i].bytes += other.entries_[i].bytes;
  }
}

std::vector<Transfer> TrafficTotals::List() const {
  std::vector<Transfer> list;
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].calls == 0) continue;
    list.push_back({.axis = static_cast<Axis>(i / kCommOps),
                    .op = static_cast<CommOp>(i % kCommOps),
                    .calls = entries_[i].calls,
                    .bytes = entries_[i].bytes});
  }
  return list;
}

bool IsOneShot(uint64_t rows, uint64_t columns, const TrafficOptions& options) {
  return rows * (kFlagBytes + columns * kNarrowBytes) <= options.one_shot_max_bytes;
}

void AddTrafficOfStep(const Layout& layout, uint32_t rank, const StepCounts& counts,
                      const TrafficOptions& options, TrafficTotals* totals) {
  if (rank >= layout.ranks.size()) return;
  const Step step{layout, layout.ranks[rank], counts, options, totals};
  const bool vllm = options.dialect == Dialect::kVllm;
  if (layout.split.tp > 1) vllm ? AddVllmTp(step) : AddTp(step);
  if (layout.split.pp > 1) vllm ? AddVllmPp(step) : AddPp(step);
  if (layout.split.ep > 1 && !vllm) AddEp(step);
  if (KvPartitionsOf(layout.split) > 1 && !vllm) AddCp(step);
}

std::vector<Transfer> TrafficOfStep(const Layout& layout, uint32_t rank, const StepCounts& counts,
                                    const TrafficOptions& options) {
  TrafficTotals totals;
  AddTrafficOfStep(layout, rank, counts, options, &totals);
  return totals.List();
}

bool IsWhollyPriced(const Split& split, Dialect dialect) {
  return dialect == Dialect::kCleave || KvPartitionsOf(split) == 1;
}

}  // namespace cleave

#include "plan/holding.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "split/layout_report.h"

namespace cleave {
namespace {

constexpr uint32_t kVocabPadding = 64;  // vLLM pads the vocabulary to it
constexpr uint32_t kMaxSize = 1U << 20U;

Status Refuse(const std::string& why) { return InvalidArgument(why); }

Status CheckTp(const ModelFacts& model, uint32_t tp) {
  if (model.num_heads % tp != 0) {
    return Refuse(fmt::format("tp {} does not divide the {} query heads", tp, model.num_heads));
  }
  const uint32_t kv = model.num_kv_heads;
  if (model.mla.kv_rank == 0 && kv % tp != 0 && tp % kv != 0) {
    return Refuse(fmt::format("tp {} neither divides the {} KV heads nor is a multiple", tp, kv));
  }
  if (RoundUp(model.vocab_size, kVocabPadding) % tp != 0) {
    return Refuse(fmt::format("tp {} does not divide the vocabulary, padded to {}", tp,
                              RoundUp(model.vocab_size, kVocabPadding)));
  }
  return OkStatus();
}

Status CheckColumns(const char* what, uint32_t columns, uint32_t ranks, uint32_t block) {
  if (columns % ranks != 0) {
    return Refuse(fmt::format("{} ranks do not divide the {} columns of {}", ranks, columns, what));
  }
  if (block == 0 || columns % block != 0 || columns / ranks % block == 0) return OkStatus();
  return Refuse(
      fmt::format("{} / {} is {} columns of {}, not a multiple of the {} of a block of "
                  "scales",
                  columns, ranks, columns / ranks, what, block));
}

Status CheckExperts(const ModelFacts& model, const Split& split, uint32_t block) {
  const uint32_t stage = split.ranks_per_stage();
  if (split.ep == 1) return CheckColumns("an expert", model.expert_ffn_size, stage, block);
  if (split.ep != stage) {
    return Refuse(fmt::format("ep {} must be all {} ranks of a stage in vLLM", split.ep, stage));
  }
  if ((model.num_experts + split.redundant_experts) % split.ep == 0) return OkStatus();
  return Refuse(fmt::format("ep {} does not divide the {} experts", split.ep, model.num_experts));
}

Status CheckAxes(const ModelFacts& model, const Split& split) {
  for (const uint32_t size :
       {split.dp, split.pp, split.teams, split.tp, split.ep, split.cp, split.dcp}) {
    if (size < 1 || size > kMaxSize) {
      return Refuse(fmt::format("a split's sizes must be between 1 and {}", kMaxSize));
    }
  }
  if (uint64_t{split.pp} * split.teams * split.tp > kMaxReplicaRanks) {
    return Refuse(fmt::format("a replica has at most {} ranks", kMaxReplicaRanks));
  }
  if (split.pp > model.num_layers()) {
    return Refuse(fmt::format("pp {} is more than the {} layers", split.pp, model.num_layers()));
  }
  if (split.cp > 1) return Refuse("cp in vLLM's dialect is dcp: it adds no ranks");
  if (!split.tp_shares.empty()) return Refuse("tp shares in vLLM's dialect are even");
  if (model.num_experts == 0 && (split.ep > 1 || split.teams > 1)) {
    return Refuse("a model without experts has nothing for ep; take dp");
  }
  const uint32_t copies = std::max(1U, split.tp / std::min(split.tp, model.num_kv_heads));
  if (split.dcp > 1 && copies % split.dcp != 0) {
    return Refuse(fmt::format("dcp {} must divide the {} copies of a KV head", split.dcp, copies));
  }
  return OkStatus();
}

// Earlier stages but the first take what is left over, from the last but one on.
Result<std::vector<Range>> VllmStages(uint32_t layers, const Split& split) {
  std::vector<uint32_t> counts(split.pp, layers / split.pp);
  for (uint32_t i = 0; i < layers % split.pp; ++i) ++counts[split.pp - 2 - i];
  if (!split.pp_layers.empty()) {
    counts = split.pp_layers;
    uint64_t sum = 0;
    for (const uint32_t count : counts) sum += count == 0 ? uint64_t{layers} + 1 : count;
    if (counts.size() != split.pp || sum != layers) {
      return Refuse(fmt::format("pp-layers {} must be {} counts of at least 1 that make {} layers",
                                fmt::join(counts, ","), split.pp, layers));
    }
  }
  return RangesOf(counts);
}

double VllmLayerBytes(const ModelFacts& model, const LayerFacts& layer, const Split& split,
                      const WeightFormat& format) {
  const LayerParameters p = model.ParametersOf(layer);
  const double tp = split.tp;
  const double kv_ranks = std::min(split.tp, model.num_kv_heads);
  const double linear = static_cast<double>(p.query) / tp + static_cast<double>(p.kv) / kv_ranks +
                        static_cast<double>(p.common) + static_cast<double>(p.dense) / tp;
  const double copies =
      1.0 + (model.num_experts == 0
                 ? 0.0
                 : static_cast<double>(split.redundant_experts) / model.num_experts);
  const double experts = static_cast<double>(p.experts) * copies / split.ranks_per_stage();
  return (linear * format.linear_bits + experts * format.expert_bits) / 8;
}

Result<std::vector<RankHolding>> VllmHoldings(const ModelFacts& model, const Split& split,
                                              const WeightFormat& format, double element_bytes) {
  RETURN_IF_ERROR(CheckAxes(model, split));
  RETURN_IF_ERROR(CheckTp(model, split.tp));
  const bool dense = std::any_of(model.layers.begin(), model.layers.end(),
                                 [](const LayerFacts& layer) { return !layer.experts; });
  if (dense) {
    RETURN_IF_ERROR(CheckColumns("a layer", model.ffn_size, split.tp, format.block_columns));
  }
  if (model.num_experts > 0) RETURN_IF_ERROR(CheckExperts(model, split, format.block_columns));
  const double embedding =
      static_cast<double>(model.EmbeddingParameters()) * format.embedding_bits / 8 / split.tp;
  const bool mla = model.mla.kv_rank > 0;
  const uint32_t shared = mla ? 1 : std::min(split.tp, model.num_kv_heads);
  std::vector<RankHolding> holdings;
  ASSIGN_OR_RETURN(const std::vector<Range> stages, VllmStages(model.num_layers(), split));
  for (uint32_t stage = 0; stage < split.pp; ++stage) {
    RankHolding h;
    h.coord.pp = stage;
    h.rank = stage * split.ranks_per_stage();
    h.layers = stages[stage];
    for (uint32_t i = h.layers.begin; i < h.layers.end; ++i) {
      h.weight_bytes += VllmLayerBytes(model, model.layers[i], split, format);
    }
    const bool last = stage + 1 == split.pp;
    if (stage == 0) h.weight_bytes += embedding;
    if (last && !(stage == 0 && model.tied_embeddings)) h.weight_bytes += embedding;
    h.kv_layer_bytes = KvElements(model) * element_bytes / shared + model.index_bytes;
    h.state_layer_bytes = static_cast<double>(StateBytesOfLayer(model)) / split.tp;
    h.partitions = split.dcp;
    holdings.push_back(h);
  }
  return holdings;
}

ModelBytes EngineBytes(const ModelFacts& model, const WeightFormat& format) {
  const auto bytes = [](uint64_t parameters, double bits) {
    return static_cast<uint64_t>(static_cast<double>(parameters) * bits / 8);
  };
  ModelBytes all;
  for (const LayerFacts& layer : model.layers) {
    const LayerParameters p = model.ParametersOf(layer);
    LayerBytes b;
    b.query = bytes(p.query, format.linear_bits);
    b.kv = bytes(p.kv, format.linear_bits);
    b.common = bytes(p.common, format.linear_bits);
    b.ffn = bytes(p.dense, format.linear_bits) + bytes(p.experts, format.expert_bits);
    all.layers.push_back(b);
  }
  all.embedding = bytes(model.EmbeddingParameters(), format.embedding_bits);
  all.head = all.embedding;
  return all;
}

Result<std::vector<RankHolding>> CleaveHoldings(const ModelFacts& model, const Split& split,
                                                const WeightFormat& format, double element_bytes) {
  ASSIGN_OR_RETURN(const ModelShape shape, EngineShape(model));
  ASSIGN_OR_RETURN(const Layout layout, MakeLayout(shape, split, CostsByWork(shape)));
  const ModelBytes bytes = EngineBytes(model, format);
  std::vector<RankHolding> holdings;
  for (const RankLayout& rank : layout.ranks) {
    RankHolding h;
    h.rank = rank.rank;
    h.coord = rank.coord;
    h.layers = rank.layers;
    h.weight_bytes = static_cast<double>(WeightBytesOf(layout, rank, bytes));
    h.kv_layer_bytes = 2.0 * rank.kv_heads.size() * shape.head_dim * element_bytes;
    h.partitions = KvPartitionsOf(split);
    h.by_runs = h.partitions > 1;
    holdings.push_back(h);
  }
  return holdings;
}

}  // namespace

Result<std::vector<RankHolding>> HoldingsOf(const ModelFacts& model, const Split& split,
                                            const WeightFormat& format, double kv_element_bytes,
                                            Dialect dialect) {
  if (dialect == Dialect::kCleave) return CleaveHoldings(model, split, format, kv_element_bytes);
  return VllmHoldings(model, split, format, kv_element_bytes);
}

double SequenceBytesOf(const ModelFacts& model, const Split& split, const RankHolding& holding,
                       uint64_t tokens) {
  double bytes = 0;
  for (uint32_t i = holding.layers.begin; i < holding.layers.end; ++i) {
    const LayerFacts& layer = model.layers[i];
    if (layer.linear) {
      bytes += holding.state_layer_bytes;
      continue;
    }
    const uint64_t seen = layer.window == 0 ? tokens : std::min<uint64_t>(tokens, layer.window);
    const double held = holding.by_runs
                            ? PositionsHeld(split, holding.coord, static_cast<uint32_t>(seen))
                            : static_cast<double>(seen) / holding.partitions;
    bytes += holding.kv_layer_bytes * held;
  }
  return bytes;
}

double TokenBytesOf(const ModelFacts& model, const RankHolding& holding) {
  double bytes = 0;
  for (uint32_t i = holding.layers.begin; i < holding.layers.end; ++i) {
    if (!model.layers[i].linear) bytes += holding.kv_layer_bytes / holding.partitions;
  }
  return bytes;
}

double WeightBytes(const ModelFacts& model, const WeightFormat& format) {
  double bytes = static_cast<double>(model.EmbeddingParameters()) *
                 (model.tied_embeddings ? 1 : 2) * format.embedding_bits / 8;
  for (const LayerFacts& layer : model.layers) {
    const LayerParameters p = model.ParametersOf(layer);
    bytes += static_cast<double>(p.experts) * format.expert_bits / 8;
    bytes += static_cast<double>(p.total() - p.experts) * format.linear_bits / 8;
  }
  return bytes;
}

}  // namespace cleave

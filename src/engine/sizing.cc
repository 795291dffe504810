#include "engine/sizing.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "engine/kv_cache.h"
#include "engine/rank_runner.h"
#include "kv/partitions.h"

namespace cleave {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

double Gib(uint64_t bytes) { return static_cast<double>(bytes) / kGib; }

// Buffers of the decoder for a full batch, logits of the rows that are made at once. Rows of every
// team may go to the experts here.
uint64_t RuntimeBytes(const SizingInput& in) {
  const ModelConfig& c = *in.config;
  const uint64_t q_size = static_cast<uint64_t>(in.rank->q_heads.size()) * c.head_dim;
  const uint64_t kv_size = static_cast<uint64_t>(in.rank->kv_heads.size()) * c.head_dim;
  const uint64_t ffn_size = in.rank->ffn_columns.size();
  const uint64_t widest = std::max<uint64_t>({c.hidden_size, q_size, ffn_size});
  const uint64_t rotary = (c.post_norms ? 2ULL : 1ULL) * c.head_dim;  // local and global layers
  // A row's copies for the experts it goes to: its input, gate and up, the input of down; E logits.
  const uint64_t copies = std::min<uint64_t>(c.experts_per_token, in.rank->experts.size());
  const uint64_t ffn_floats =
      c.has_experts() ? copies * (c.hidden_size + 3 * ffn_size) + c.num_experts : 2 * ffn_size;
  // Over tp: embedding rows of this rank and of all, and logits as they come and as they go out.
  const uint64_t exchanged = in.tp > 1 ? 2ULL * c.hidden_size : 0;
  const uint64_t logit_copies = in.tp > 1 ? 3 : 1;
  const uint64_t totals = 2ULL * c.hidden_size;  // 64 bits each
  const uint64_t row_floats =
      3ULL * c.hidden_size + rotary + 2 * q_size + 2 * kv_size + 2 * widest + exchanged;
  return in.max_num_batched_tokens * (row_floats + in.teams * (ffn_floats + totals)) *
             sizeof(float) +
         logit_copies * RowsAtOnce(c, in.max_num_seqs) * c.vocab_size * sizeof(float);
}

// Partial attentions as they are made, as they go out and as they come: three bins of d and a mass.
// The queries of the others of a dcp group, as they come and side by side.
uint64_t PartialBytesOf(const SizingInput& in) {
  constexpr uint64_t kCopies = 3;
  constexpr uint64_t kBins = 3;
  const uint64_t d = in.config->head_dim;
  const uint64_t others =
      in.partial_queries - std::min(in.partial_queries, in.rank->q_heads.size());
  const uint64_t of_query = kCopies * kBins * (d + 1) * sizeof(int64_t);
  const uint64_t gathered = others == 0 ? 0 : 2 * in.partial_queries * d * sizeof(float);
  return in.max_num_batched_tokens * (in.partial_queries * of_query + gathered);
}

Status DoesNotFit(const SizingInput& in, const Sizing& s, uint64_t needed_bytes,
                  const std::string& what, const std::string& fix) {
  return ResourceExhausted(fmt::format(
      "{} needs {:.2f} GiB: weights {:.2f}, runtime {:.2f}, KV for it {:.2f}; the budget is {:.2f} "
      "GiB ({:.0f} % of {:.2f} GiB). {}",
      what, Gib(needed_bytes), Gib(s.weight_bytes), Gib(s.runtime_bytes),
      Gib(needed_bytes - s.weight_bytes - s.runtime_bytes), Gib(s.budget_bytes),
      in.utilization * 100, Gib(in.memory_bytes), fix));
}

Status ContextDoesNotFit(const SizingInput& in, uint64_t needed_bytes, uint64_t kv_bytes,
                         uint64_t fits_tokens) {
  const std::string where =
      in.kv_partitions == 1
          ? ""
          : fmt::format(" in the first of {} ranks that share its positions", in.kv_partitions);
  return ResourceExhausted(fmt::format(
      "to serve one sequence of --max-model-len {} takes {:.3f} GiB of KV cache{}, {:.3f} GiB are "
      "there: at most {} tokens fit; lower --max-model-len, or raise --kv-cache-memory-bytes or "
      "--gpu-memory-utilization",
      *in.max_model_len, Gib(needed_bytes), where, Gib(kv_bytes), fits_tokens));
}

}  // namespace

double Sizing::MaxConcurrency(uint32_t block_tokens) const {
  const KvPartitions positions{.count = kv_partitions, .run = kRunPositions};
  return static_cast<double>(num_blocks) * teams * block_tokens /
         std::max(1U, positions.Fullest(max_model_len));
}

std::string Sizing::Account(uint32_t block_tokens) const {
  const uint64_t pool_tokens = uint64_t{pool_blocks()} * block_tokens;
  return fmt::format(
      "weights {:.2f} GiB, KV cache {:.2f} GiB ({} tokens, {:.2f}x of {}), runtime {:.2f} GiB of "
      "{:.2f} GiB",
      Gib(weight_bytes), Gib(kv_bytes), pool_tokens, MaxConcurrency(block_tokens), max_model_len,
      Gib(runtime_bytes), Gib(budget_bytes));
}

Result<Sizing> ComputeSizing(const SizingInput& in) {
  const ModelConfig& c = *in.config;
  const uint64_t block_bytes =
      KvCache::BlockBytes(in.kv_shape, in.rank->layers.size(), in.rank->kv_heads.size());
  const uint32_t block_tokens = in.kv_shape.block_tokens;
  Sizing s;
  s.weight_bytes = in.weight_bytes;
  s.budget_bytes = static_cast<uint64_t>(static_cast<double>(in.memory_bytes) * in.utilization);
  s.max_model_len = in.max_model_len.value_or(c.max_position);
  s.teams = in.teams;
  s.kv_partitions = in.kv_partitions;
  s.runtime_bytes = RuntimeBytes(in) + PartialBytesOf(in);

  const uint64_t fixed_bytes = s.weight_bytes + s.runtime_bytes;
  const std::string fix =
      "lower --max-model-len, --max-num-batched-tokens or --max-num-seqs, raise "
      "--gpu-memory-utilization, or take a smaller quantisation";
  if (fixed_bytes + block_bytes > s.budget_bytes) {
    return DoesNotFit(in, s, fixed_bytes + block_bytes, "the model with one KV block", fix);
  }
  uint64_t kv_budget = s.budget_bytes - fixed_bytes;
  if (in.kv_cache_memory_bytes) {
    if (*in.kv_cache_memory_bytes > kv_budget) {
      return DoesNotFit(in, s, fixed_bytes + *in.kv_cache_memory_bytes,
                        "--kv-cache-memory-bytes with the model",
                        fmt::format("lower it to at most {}", kv_budget));
    }
    kv_budget = *in.kv_cache_memory_bytes;
  }
  uint64_t blocks = kv_budget / block_bytes;
  if (blocks == 0) {
    return ResourceExhausted(
        fmt::format("--kv-cache-memory-bytes {} holds no KV block: one of {} tokens takes {} bytes",
                    kv_budget, block_tokens, block_bytes));
  }
  // A block's id is an int32_t, over all partitions; their number, over all teams.
  blocks = std::min<uint64_t>(blocks, INT32_MAX / (uint64_t{in.teams} * in.kv_partitions));
  const auto partitions = KvPartitions::OfBlocks(in.kv_partitions, kRunPositions, block_tokens);
  const auto rank_blocks = [&](uint32_t tokens) -> uint64_t {  // of a sequence's fullest rank
    return partitions.Fullest(static_cast<uint32_t>(CeilDiv<uint64_t>(tokens, block_tokens)));
  };
  const uint64_t fits_tokens = partitions.Longest(blocks) * block_tokens;
  if (!in.max_model_len) {
    s.max_model_len = static_cast<uint32_t>(std::min<uint64_t>(c.max_position, fits_tokens));
  } else if (*in.max_model_len > fits_tokens) {
    return ContextDoesNotFit(in, rank_blocks(*in.max_model_len) * block_bytes, kv_budget,
                             fits_tokens);
  }
  if (!in.kv_cache_memory_bytes) {
    blocks = std::min(blocks, in.max_num_seqs * rank_blocks(s.max_model_len));
  }
  s.num_blocks = static_cast<uint32_t>(blocks);
  s.kv_bytes = s.num_blocks * block_bytes;
  return s;
}

Sizing Smallest(const Sizing& a, const Sizing& b) {
  Sizing least = b.num_blocks < a.num_blocks ? b : a;
  least.max_model_len = std::min(a.max_model_len, b.max_model_len);
  return least;
}

}  // namespace cleave

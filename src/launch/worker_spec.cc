#include "launch/worker_spec.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "kv/block_pool.h"

namespace nlohmann {

// Nothing is null.
template <typename T>
struct adl_serializer<std::optional<T>> {
  static void to_json(json& to, const std::optional<T>& from) {  // NOLINT: the library's name
    to = from ? json(*from) : json(nullptr);
  }
  static void from_json(const json& from, std::optional<T>& to) {  // NOLINT: likewise
    to = from.is_null() ? std::nullopt : std::optional<T>(from.get<T>());
  }
};

}  // namespace nlohmann

namespace cleave {
namespace {

// A field added to one of these structs must be added to its list below: the bindings no longer
// compile until it is.
[[maybe_unused]] void CountFields(const ModelSettings& s) {
  [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, j, split] =
      s;  // split: WorkerSpec's own
}
[[maybe_unused]] void CountFields(const Sizing& s) {
  [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h] = s;
}
[[maybe_unused]] void CountFields(const Split& s) {
  [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, j, k, l] = s;
}
[[maybe_unused]] void CountFields(const EngineConfig& s) {
  [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = s;
}

// Each team has a pool, its partitions are the ranks that share a sequence, and all are equal.
Status CheckPool(const WorkerSpec& spec) {
  const EngineConfig& e = spec.engine;
  const uint64_t ranks = uint64_t{spec.split.cp} * spec.split.dcp;
  if (e.kv_partitions != 0 && e.kv_partitions == ranks && ranks <= BlockPool::kMaxPartitions &&
      e.teams == spec.split.teams && e.num_blocks % (e.teams * ranks) == 0 && e.block_size > 0 &&
      (e.kv_partitions == 1 || kRunPositions % e.block_size == 0)) {
    return OkStatus();
  }
  return DataLoss(fmt::format(
      "a worker's orders: {} KV blocks of {} tokens in {} pools of {} partitions, for {}",
      e.num_blocks, e.block_size, e.teams, e.kv_partitions, spec.split.ToString()));
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ModelSettings, dtype, kv_cache_dtype, block_size, max_model_len,
                                   max_num_seqs, max_num_batched_tokens, memory_utilization,
                                   kv_cache_memory_bytes, threads, repacked_cache_dir)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Sizing, max_model_len, num_blocks, teams, kv_partitions,
                                   weight_bytes, kv_bytes, runtime_bytes, budget_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Split, dp, pp, teams, tp, ep, cp, dcp, tp_shares, pp_layers,
                                   redundant_experts, expert_loads, experts_by_load)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EngineConfig, max_model_len, max_num_seqs,
                                   max_num_batched_tokens, max_num_queued_reqs,
                                   max_num_queued_tokens, block_size, num_blocks, teams,
                                   kv_partitions, enable_prefix_caching, policy,
                                   long_prefill_token_threshold, eos_token_ids)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkerFds, control, memory, link)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkerSpec, model_path, settings, split, replica, rank, threads,
                                   cpus, sizing, engine, epoch, one_shot_max_bytes, log_level,
                                   log_format, fds)

std::vector<uint8_t> Pack(const WorkerSpec& spec) {
  return nlohmann::json::to_cbor(nlohmann::json(spec));
}

Result<WorkerSpec> UnpackWorkerSpec(std::span<const std::byte> bytes) {
  try {
    const auto* first = reinterpret_cast<const uint8_t*>(bytes.data());
    auto spec = nlohmann::json::from_cbor(first, first + bytes.size()).get<WorkerSpec>();
    const Split& s = spec.split;
    const auto is_size = [](uint32_t size) { return size > 0 && size <= kMaxAxisSize; };
    if (!is_size(s.pp) || !is_size(s.teams) || !is_size(s.tp) || !is_size(s.cp) ||
        spec.rank >= s.ranks_per_replica()) {
      return DataLoss(
          fmt::format("a worker's orders: rank {} of {}: no such rank", spec.rank, s.ToString()));
    }
    RETURN_IF_ERROR(CheckPool(spec));
    return spec;
  } catch (const nlohmann::json::exception& e) {
    return DataLoss(fmt::format("a worker's orders: {}", e.what()));
  }
}

}  // namespace cleave

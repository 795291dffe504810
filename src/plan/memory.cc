#include "plan/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "plan/holding.h"
#include "split/layout.h"

namespace cleave {
namespace {

constexpr double kMib = 1048576.0;
constexpr double kGib = 1073741824.0;
constexpr uint64_t kBlockTokens = 16;
constexpr uint64_t kMaxTokens = uint64_t{1} << 30U;
constexpr uint64_t kMostRequests = uint64_t{1} << 40U;

uint64_t Bytes(double bytes) { return static_cast<uint64_t>(std::max(bytes, 0.0)); }

// AIConfigurator's; see memory.h.
double ActivationFactor(uint32_t tp, bool experts) {
  const double dense = tp == 1 ? 11 : tp < 4 ? 6.5 : 5;
  return experts ? 2 * dense : dense;
}

// vLLM's defaults for a server, by memory; A100 counts as a smaller card for it.
uint32_t BatchedTokens(const DeviceFacts& device, const MemorySettings& settings) {
  if (settings.max_batched_tokens > 0) return settings.max_batched_tokens;
  const double gib = static_cast<double>(device.memory_bytes()) / kGib;
  if (gib >= 160) return 16384;
  return gib >= 70 && !device.name.starts_with("A100") ? 8192 : 2048;
}

uint32_t NumSeqs(const DeviceFacts& device, const MemorySettings& settings) {
  if (settings.max_num_seqs > 0) return settings.max_num_seqs;
  const double gib = static_cast<double>(device.memory_bytes()) / kGib;
  return gib >= 70 && !device.name.starts_with("A100") ? 1024 : 256;
}

// All of the account but weights and KV.
MemoryAccount Overheads(const ModelFacts& model, const DeviceFacts& device, const Split& split,
                        const MemorySettings& settings) {
  MemoryAccount a;
  a.split = split;
  const bool experts = model.num_experts > 0;
  const uint32_t ranks = split.ranks_per_replica();
  a.device_bytes = device.memory_bytes();
  const auto total = static_cast<double>(a.device_bytes);
  a.budget_bytes = Bytes(total * settings.utilization);
  a.activation_bytes = Bytes(2.0 * BatchedTokens(device, settings) * model.hidden_size *
                             ActivationFactor(split.tp, experts));
  a.logits_bytes = Bytes(4.0 * NumSeqs(device, settings) * model.vocab_size / split.tp);
  a.graph_bytes = settings.graph_bytes.value_or(Bytes((experts ? 2 : 1) * kGib));
  a.context_bytes = settings.context_bytes.value_or(Bytes(0.5 * kGib));
  const double nccl_mib = ranks == 1 ? 0 : ranks == 2 ? 342 : 392;
  a.collective_bytes = settings.collective_bytes.value_or(Bytes(nccl_mib * kMib));
  a.margin_bytes = settings.margin_bytes.value_or(Bytes(std::max(0.02 * total, kGib)));
  return a;
}

// The largest n up to `most` for which fits(n) holds; it holds for all smaller ones.
template <typename Fits>
uint64_t Largest(uint64_t most, const Fits& fits) {
  uint64_t low = 0;
  uint64_t high = most;
  while (low < high) {
    const uint64_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// What is left of a rank for KV, and what that holds.
struct Room {
  double kv_bytes = 0;
  double weight_bytes = 0;
  double token_bytes = 0;
  uint64_t tokens = 0;  // of its pool; whole blocks
  uint64_t context = 0;
  uint64_t requests = 0;
};

uint64_t WholeBlocks(double tokens) {
  const double capped = std::clamp(tokens, 0.0, 1e15);
  return static_cast<uint64_t>(capped) / kBlockTokens * kBlockTokens;
}

Room RoomOf(const ModelFacts& model, const Split& split, const RankHolding& holding,
            const MemoryAccount& a, double weight_scale, const RequestShape& request) {
  Room room;
  room.weight_bytes = holding.weight_bytes * weight_scale;
  room.kv_bytes = static_cast<double>(a.budget_bytes) - room.weight_bytes -
                  static_cast<double>(a.runtime_bytes()) - static_cast<double>(a.margin_bytes);
  room.token_bytes = TokenBytesOf(model, holding);
  // A stage whose layers are all linear keeps no tokens: states alone bound it.
  const bool keeps = room.token_bytes > 0;
  const uint64_t most = room.kv_bytes > 0 ? kMaxTokens : 0;
  room.tokens = keeps ? WholeBlocks(room.kv_bytes / room.token_bytes) : most;
  const auto sequence = [&](uint64_t tokens) {
    const uint64_t whole = (tokens + kBlockTokens - 1) / kBlockTokens * kBlockTokens;
    return SequenceBytesOf(model, split, holding, whole);
  };
  room.context = Largest(std::min<uint64_t>(model.max_context, kMaxTokens),
                         [&](uint64_t tokens) { return sequence(tokens) <= room.kv_bytes; });
  const double one = sequence(request.tokens());
  if (room.kv_bytes > 0) {
    room.requests = one > 0 ? static_cast<uint64_t>(room.kv_bytes / one) : kMostRequests;
  }
  return room;
}

std::string Gib(double bytes) { return fmt::format("{:.1f} GiB", bytes / kGib); }

void Judge(const ModelFacts& model, const RequestShape& request, MemoryAccount* a) {
  const uint64_t tokens = request.tokens();
  if (a->kv_bytes <= 0) {
    a->reason = fmt::format(
        "weights of {}, runtime of {} and margin of {} need {} more than the {} a device may use",
        Gib(static_cast<double>(a->weight_bytes)), Gib(static_cast<double>(a->runtime_bytes())),
        Gib(static_cast<double>(a->margin_bytes)), Gib(-static_cast<double>(a->kv_bytes)),
        Gib(static_cast<double>(a->budget_bytes)));
    return;
  }
  if (tokens > model.max_context) {
    a->reason = fmt::format("prompt and output are {} tokens; the model takes at most {}", tokens,
                            model.max_context);
    return;
  }
  if (a->context_limit < tokens) {
    a->reason = fmt::format("{} of KV hold {} tokens of one request, which has {}",
                            Gib(static_cast<double>(a->kv_bytes)), a->context_limit, tokens);
    return;
  }
  a->fits = true;
  if (a->requests < request.concurrency) {
    a->reason = fmt::format("{} requests fit at once; of {} some would wait or be preempted",
                            a->requests, request.concurrency);
  }
}

Status InRange(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return OkStatus();  // NaN is in none
  return InvalidArgument(
      fmt::format("{} is {}; it must be between {} and {}", name, value, low, high));
}

void TryFormats(const ModelFacts& model, const DeviceFacts& device, const Split& split,
                const MemorySettings& settings, const RequestShape& request,
                std::vector<std::string>* changes) {
  const double now = WeightBytes(model, settings.weights);
  for (const char* name : {"fp8", "awq"}) {
    MemorySettings other = settings;
    other.weights = *FindWeightFormat(name);
    other.weight_bytes.reset();
    if (WeightBytes(model, other.weights) >= now) continue;
    const auto a = AccountOf(model, device, split, other, request);
    if (!a.ok() || !a->fits) continue;
    changes->push_back(fmt::format("weights as {}", name));
    return;
  }
}

void TryRanks(const ModelFacts& model, const DeviceFacts& device, const Split& split,
              const MemorySettings& settings, const RequestShape& request,
              std::vector<std::string>* changes) {
  Split wider = split;
  Split deeper = split;
  const auto fits = [&](const Split& each) {
    const auto a = AccountOf(model, device, each, settings, request);
    return a.ok() && a->fits;
  };
  for (uint32_t tp = split.tp + 1; tp <= 8 * split.tp && tp <= 64; ++tp) {
    wider.tp = tp;
    if (split.ep > 1) wider.ep = tp * split.teams;
    if (!fits(wider)) continue;
    changes->push_back(fmt::format("tp {} ({} devices a replica)", tp, wider.ranks_per_replica()));
    break;
  }
  for (uint32_t pp = split.pp + 1; pp <= 8 * split.pp && pp <= model.num_layers(); ++pp) {
    deeper.pp = pp;
    deeper.pp_layers.clear();
    if (!fits(deeper)) continue;
    changes->push_back(fmt::format("pp {} ({} devices a replica)", pp, deeper.ranks_per_replica()));
    break;
  }
}

bool IsBetter(const MemoryAccount& a, const MemoryAccount& b) {
  if (a.fits != b.fits) return a.fits;
  if (a.kv_tokens != b.kv_tokens) return a.kv_tokens > b.kv_tokens;
  return a.kv_bytes > b.kv_bytes;
}

}  // namespace

Status CheckSettings(const MemorySettings& settings, const RequestShape& request) {
  RETURN_IF_ERROR(InRange("utilization", settings.utilization, 0.01, 1));
  RETURN_IF_ERROR(InRange("KV bytes an element", settings.kv_element_bytes, 0.25, 8));
  RETURN_IF_ERROR(InRange("max-num-batched-tokens", settings.max_batched_tokens, 0, 1U << 24U));
  RETURN_IF_ERROR(InRange("max-num-seqs", settings.max_num_seqs, 0, 1U << 24U));
  const auto most = static_cast<double>(kMaxTokens);
  RETURN_IF_ERROR(InRange("prompt", static_cast<double>(request.prompt_tokens), 1, most));
  RETURN_IF_ERROR(InRange("output", static_cast<double>(request.output_tokens), 1, most));
  return InRange("concurrency", static_cast<double>(request.concurrency), 1, most);
}

Result<MemoryAccount> AccountOf(const ModelFacts& model, const DeviceFacts& device,
                                const Split& split, const MemorySettings& settings,
                                const RequestShape& request) {
  RETURN_IF_ERROR(CheckSettings(settings, request));
  if (device.memory_bytes() == 0) {
    return InvalidArgument(
        fmt::format("device {}: its memory is not known; give memory_gb in a "
                    "file for --catalogue",
                    device.name));
  }
  ASSIGN_OR_RETURN(
      const std::vector<RankHolding> holdings,
      HoldingsOf(model, split, settings.weights, settings.kv_element_bytes, settings.dialect));
  MemoryAccount a = Overheads(model, device, split, settings);
  const double scale = settings.weight_bytes ? static_cast<double>(*settings.weight_bytes) /
                                                   WeightBytes(model, settings.weights)
                                             : 1.0;
  std::vector<Room> rooms;
  rooms.reserve(holdings.size());
  for (const RankHolding& holding : holdings) {
    rooms.push_back(RoomOf(model, split, holding, a, scale, request));
  }
  const auto least = std::min_element(rooms.begin(), rooms.end(), [](const Room& x, const Room& y) {
    return std::pair(x.tokens, x.kv_bytes) < std::pair(y.tokens, y.kv_bytes);
  });
  const uint64_t pools = uint64_t{split.dp} * split.teams;
  a.rank = holdings[static_cast<size_t>(least - rooms.begin())].rank;
  a.weight_bytes = Bytes(least->weight_bytes);
  a.kv_bytes = static_cast<int64_t>(least->kv_bytes);
  a.kv_bytes_per_token = least->token_bytes;
  a.kv_tokens = least->tokens * pools;
  a.context_limit = least->context;
  a.requests = least->requests;
  for (const Room& room : rooms) {
    a.context_limit = std::min(a.context_limit, room.context);
    a.requests = std::min(a.requests, room.requests);
  }
  a.requests *= pools;
  Judge(model, request, &a);
  return a;
}

std::vector<std::string> ChangesThatFit(const ModelFacts& model, const DeviceFacts& device,
                                        const Split& split, const MemorySettings& settings,
                                        const RequestShape& request) {
  std::vector<std::string> changes;
  const auto now = AccountOf(model, device, split, settings, request);
  if (!now.ok() || now->fits) return changes;
  if (settings.kv_element_bytes > 1) {
    MemorySettings other = settings;
    other.kv_element_bytes = 1;
    const auto a = AccountOf(model, device, split, other, request);
    if (a.ok() && a->fits) changes.emplace_back("KV as fp8");
  }
  if (now->kv_bytes > 0 && now->context_limit > 1) {
    changes.push_back(fmt::format("prompt and output of at most {} tokens", now->context_limit));
  }
  if (request.tokens() > model.max_context) return changes;
  TryFormats(model, device, split, settings, request, &changes);
  TryRanks(model, device, split, settings, request, &changes);
  return changes;
}

std::vector<MemoryAccount> RankByMemory(const ModelFacts& model, const ClusterFacts& cluster,
                                        const MemorySettings& settings,
                                        const RequestShape& request) {
  std::vector<MemoryAccount> accounts;
  const uint32_t all = cluster.devices();
  const uint32_t widest = std::min({cluster.devices_per_node, model.num_heads, kMaxGroupRanks});
  for (uint32_t tp = 1; tp <= widest; ++tp) {
    if (cluster.devices_per_node % tp != 0) continue;
    const std::vector<uint32_t> eps =
        model.num_experts > 0 && tp > 1 ? std::vector<uint32_t>{1, tp} : std::vector<uint32_t>{1};
    for (uint32_t pp = 1; pp <= std::min(model.num_layers(), all / tp); ++pp) {
      if (all % (tp * pp) != 0) continue;
      for (const uint32_t ep : eps) {
        const Split split{.dp = all / (tp * pp), .pp = pp, .tp = tp, .ep = ep};
        auto a = AccountOf(model, cluster.device, split, settings, request);
        if (a.ok()) accounts.push_back(*std::move(a));
      }
    }
  }
  std::stable_sort(accounts.begin(), accounts.end(), IsBetter);
  return accounts;
}

}  // namespace cleave

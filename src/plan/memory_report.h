#pragma once
// The account of memory of every split, as text and as JSON (`cleave plan`). Values in, strings
// out; any thread.

#include <string>
#include <vector>

#include "plan/device_facts.h"
#include "plan/memory.h"
#include "plan/model_facts.h"

namespace cleave {

struct MemoryReport {
  // They outlive the report.
  const ModelFacts* model = nullptr;
  const ClusterFacts* cluster = nullptr;
  MemorySettings settings;
  RequestShape request;
  std::vector<MemoryAccount> accounts;  // RankByMemory
};

std::string ReportText(const MemoryReport& report);
// {"model": {"name", "total_params_b", "active_params_b", "published_total",
//  "kv_bytes_per_token", "weight_bytes", "source"}, "device": {"name", "memory_bytes",
//  "bandwidth_gb_s", "source"}, "devices", "nodes", "dialect", "splits": [{"dp", "pp", "tp",
//  "ep", "cp", "fits", "reason", "changes": […], of the rank with the least room "rank",
//  "device_bytes", "budget_bytes", "weight_bytes", "kv_bytes", "runtime_bytes",
//  "activation_bytes", "logits_bytes", "graph_bytes", "context_bytes", "collective_bytes",
//  "margin_bytes", "kv_bytes_per_token"; "kv_tokens", "context_limit", "requests"}]}
std::string ReportJson(const MemoryReport& report);

}  // namespace cleave

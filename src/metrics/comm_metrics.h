#pragma once
// CommMetrics: the cleave_comm_… metrics: what ranks moved, and what was predicted; and the
// cleave_expert_… ones: where tokens went. Private to the folder. Labels: axis and op as in
// /v1/bill, rank in its replica, engine: the replica's number, expert: as the model counts them.
//
// Owner and lock: ServerMetrics.

#include <prometheus/registry.h>

#include <string>

#include "comm/bill.h"

namespace cleave {

class CommMetrics {
 public:
  CommMetrics(prometheus::Registry* registry, const std::string& model_name);

  // Counters follow the bill.
  void Update(const Bill& bill);

 private:
  void UpdateExperts(const Bill& bill);
  void UpdateRank(const RankBill& rank, const prometheus::Labels& labels);

  // Set by the constructor; the registry owns what they point to.
  const std::string model_name_;
  prometheus::Family<prometheus::Counter>& bytes_;
  prometheus::Family<prometheus::Counter>& calls_;
  prometheus::Family<prometheus::Counter>& predicted_bytes_;
  prometheus::Family<prometheus::Counter>& predicted_calls_;
  prometheus::Family<prometheus::Counter>& transfer_s_;
  prometheus::Family<prometheus::Counter>& wait_s_;
  prometheus::Family<prometheus::Counter>& step_s_;
  prometheus::Family<prometheus::Gauge>& bubble_;
  prometheus::Family<prometheus::Counter>& expert_tokens_;
  prometheus::Family<prometheus::Gauge>& expert_imbalance_;
};

}  // namespace cleave

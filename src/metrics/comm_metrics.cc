#include "metrics/comm_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>

#include <algorithm>

namespace cleave {
namespace {

prometheus::Family<prometheus::Counter>& Counters(prometheus::Registry* registry, const char* name,
                                                  const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry);
}

void Follow(prometheus::Family<prometheus::Counter>* family, const prometheus::Labels& labels,
            double total) {
  prometheus::Counter& counter = family->Add(labels);
  counter.Increment(std::max(0.0, total - counter.Value()));
}

double Seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

CommMetrics::CommMetrics(prometheus::Registry* r, const std::string& model_name)
    : model_name_(model_name),
      bytes_(Counters(r, "cleave_comm_bytes_total", "Payload bytes handed to other ranks.")),
      calls_(Counters(r, "cleave_comm_calls_total", "Operations that handed bytes to others.")),
      predicted_bytes_(Counters(r, "cleave_comm_predicted_bytes_total",
                                "Bytes that the layout predicts for the steps that ran.")),
      predicted_calls_(Counters(r, "cleave_comm_predicted_calls_total",
                                "Operations that the layout predicts for the steps that ran.")),
      transfer_s_(Counters(r, "cleave_comm_transfer_seconds_total",
                           "Time inside operations, without waiting for a late rank.")),
      wait_s_(Counters(r, "cleave_comm_wait_seconds_total", "Time waiting for a late rank.")),
      step_s_(Counters(r, "cleave_rank_step_seconds_total", "Time of a rank inside steps.")),
      bubble_(prometheus::BuildGauge()
                  .Name("cleave_pp_bubble_ratio")
                  .Help("Share of a rank's time inside steps spent waiting for another stage.")
                  .Register(*r)),
      expert_tokens_(Counters(r, "cleave_expert_tokens_total",
                              "Tokens computed by an expert, over all layers.")),
      expert_imbalance_(prometheus::BuildGauge()
                            .Name("cleave_expert_imbalance")
                            .Help("Largest load of an ep rank (of an expert, where ep is 1) over "
                                  "the mean, in tokens since the start; 1 is even.")
                            .Register(*r)) {}

void CommMetrics::Update(const Bill& bill) {
  for (size_t i = 0; i < bill.ranks.size(); ++i) {
    const prometheus::Labels labels = {{"model_name", model_name_},
                                       {"engine", std::to_string(bill.replica_of(i))},
                                       {"rank", std::to_string(bill.rank_of(i))}};
    UpdateRank(bill.ranks[i], labels);
    if (bill.split.pp > 1) bubble_.Add(labels).Set(bill.ranks[i].bubble());
  }
  if (!bill.expert_tokens.empty()) UpdateExperts(bill);
}

void CommMetrics::UpdateExperts(const Bill& bill) {
  for (uint32_t replica = 0; replica < bill.split.dp; ++replica) {
    const std::span<const ExpertTokens> ranks = bill.ExpertTokensOf(replica);
    const prometheus::Labels labels = {{"model_name", model_name_},
                                       {"engine", std::to_string(replica)}};
    ExpertTokens tokens;
    for (const ExpertTokens& rank : ranks) AddTokens(rank, &tokens);
    for (size_t expert = 0; expert < tokens.size(); ++expert) {
      prometheus::Labels all = labels;
      all.insert({"expert", std::to_string(expert)});
      Follow(&expert_tokens_, all, static_cast<double>(tokens[expert]));
    }
    expert_imbalance_.Add(labels).Set(ExpertImbalance(bill.split, ranks));
  }
}

void CommMetrics::UpdateRank(const RankBill& rank, const prometheus::Labels& labels) {
  for (uint32_t a = 0; a < kAxes; ++a) {
    for (uint32_t o = 0; o < kCommOps; ++o) {
      const auto axis = static_cast<Axis>(a);
      const auto op = static_cast<CommOp>(o);
      const OpBill& figures = rank.of(axis, op);
      if (figures == OpBill()) continue;
      prometheus::Labels all = labels;
      all.insert({{"axis", AxisName(axis)}, {"op", CommOpName(op)}});
      Follow(&bytes_, all, static_cast<double>(figures.bytes));
      Follow(&calls_, all, static_cast<double>(figures.calls));
      Follow(&predicted_bytes_, all, static_cast<double>(figures.predicted_bytes));
      Follow(&predicted_calls_, all, static_cast<double>(figures.predicted_calls));
      Follow(&transfer_s_, all, Seconds(figures.transfer_ns));
      Follow(&wait_s_, all, Seconds(figures.wait_ns));
    }
  }
  if (rank.step_ns() > 0) Follow(&step_s_, labels, Seconds(rank.step_ns()));
}

}  // namespace cleave

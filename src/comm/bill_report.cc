#include "comm/bill_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/text_table.h"

namespace cleave {
namespace {

using Json = nlohmann::ordered_json;

double Seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

bool IsUsed(const OpBill& op) { return op != OpBill(); }

// fn(axis, op, figures) of what was used, by axis, then operation.
template <typename Fn>
void ForEachUsed(const RankBill& bill, Fn&& fn) {
  for (uint32_t a = 0; a < kAxes; ++a) {
    for (uint32_t o = 0; o < kCommOps; ++o) {
      const auto axis = static_cast<Axis>(a);
      const auto op = static_cast<CommOp>(o);
      if (IsUsed(bill.of(axis, op))) fn(axis, op, bill.of(axis, op));
    }
  }
}

// Operations as `write` has them, in lists by axis.
template <typename Write>
Json AxesJson(const RankBill& bill, Write&& write) {
  Json axes = Json::array();
  ForEachUsed(bill, [&](Axis axis, CommOp op, const OpBill& figures) {
    if (axes.empty() || axes.back()["axis"] != AxisName(axis)) {
      axes.push_back({{"axis", AxisName(axis)}, {"ops", Json::array()}});
    }
    Json entry = {{"op", CommOpName(op)}};
    write(figures, &entry);
    axes.back()["ops"].push_back(std::move(entry));
  });
  return axes;
}

void WriteFigures(const OpBill& figures, Json* entry) {
  (*entry)["calls"] = figures.calls;
  (*entry)["metered_bytes"] = figures.bytes;
  (*entry)["predicted_calls"] = figures.predicted_calls;
  (*entry)["predicted_bytes"] = figures.predicted_bytes;
  (*entry)["transfer_s"] = Seconds(figures.transfer_ns);
  (*entry)["wait_s"] = Seconds(figures.wait_ns);
}

Json PerTokenJson(const RankBill& total, uint64_t tokens) {
  Json json = {{"generated_tokens", tokens}, {"axes", Json::array()}};
  if (tokens == 0) return json;
  const double share = 1 / static_cast<double>(tokens);
  json["axes"] = AxesJson(total, [share](const OpBill& figures, Json* entry) {
    (*entry)["calls"] = static_cast<double>(figures.calls) * share;
    (*entry)["bytes"] = static_cast<double>(figures.bytes) * share;
    (*entry)["transfer_s"] = Seconds(figures.transfer_ns) * share;
    (*entry)["wait_s"] = Seconds(figures.wait_ns) * share;
  });
  return json;
}

bool IsExact(const Bill& bill) {
  for (const RankBill& rank : bill.ranks) {
    if (!rank.exact()) return false;
  }
  return true;
}

std::vector<std::string> RowOf(Axis axis, CommOp op, const OpBill& f, uint64_t tokens) {
  return {AxisName(axis),
          CommOpName(op),
          fmt::format("{}", f.calls),
          fmt::format("{}", f.bytes),
          f.exact() ? "the same" : fmt::format("{} in {}", f.predicted_bytes, f.predicted_calls),
          tokens == 0 ? "-" : fmt::format("{}", f.bytes / tokens),
          fmt::format("{:.3f}", Seconds(f.transfer_ns)),
          fmt::format("{:.3f}", Seconds(f.wait_ns))};
}

}  // namespace

std::string BillText(const Bill& bill, uint64_t generated_tokens) {
  const RankBill total = bill.Total();
  std::vector<std::vector<std::string>> rows = {{"axis", "operation", "calls", "bytes", "predicted",
                                                 "bytes a token", "transfer s", "wait s"}};
  ForEachUsed(total, [&](Axis axis, CommOp op, const OpBill& figures) {
    rows.push_back(RowOf(axis, op, figures, generated_tokens));
  });
  if (rows.size() == 1) return "nothing was exchanged\n";
  std::string text = TextTable(rows);
  text += fmt::format("{} tokens generated; metered {} predicted on every rank", generated_tokens,
                      IsExact(bill) ? "as" : "NOT as");
  if (bill.split.pp > 1) text += fmt::format("; pipeline bubble {:.1f} %", bill.bubble() * 100);
  return text + "\n";
}

std::string BillJson(const Bill& bill, uint64_t generated_tokens) {
  const RankBill total = bill.Total();
  Json json;
  json["axes"] = AxesJson(total, WriteFigures);
  json["exact"] = IsExact(bill);
  json["bubble"] = bill.bubble();
  json["per_generated_token"] = PerTokenJson(total, generated_tokens);
  json["ranks"] = Json::array();
  for (size_t i = 0; i < bill.ranks.size(); ++i) {
    const RankBill& rank = bill.ranks[i];
    const RankCoord coord = CoordOf(bill.split, bill.rank_of(i));
    json["ranks"].push_back({{"replica", bill.replica_of(i)},
                             {"rank", bill.rank_of(i)},
                             {"pp", coord.pp},
                             {"team", coord.team},
                             {"tp", coord.tp},
                             {"cp", coord.cp},
                             {"step_s", Seconds(rank.step_ns())},
                             {"bubble", rank.bubble()},
                             {"axes", AxesJson(rank, WriteFigures)}});
  }
  return json.dump();
}

}  // namespace cleave

#include "split/balance.h"

#include <algorithm>
#include <limits>

namespace cleave {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Best cuts of the layers from any layer on, stage by stage from the last:
// value[l] for stages s … of layers l …, and how many layers stage s takes
// there.
class StageTable {
 public:
  StageTable(const LayerCosts& costs, uint32_t stages)
      : costs_(costs), layers_(static_cast<uint32_t>(costs.layers.size())), stages_(stages) {}

  // combine(cost of stage s, value of the stages after it) is what is
  // minimised.
  template <typename Combine>
  double Solve(double limit, Combine combine) {
    std::vector<double> after(layers_ + 1, kInfinity);
    after[layers_] = 0;
    taken_.assign(stages_, std::vector<uint32_t>(layers_, 0));
    for (uint32_t s = stages_; s-- > 0;) {
      std::vector<double> here(layers_ + 1, kInfinity);
      // Stages before s take at least one layer each, so do those after it.
      const uint32_t last_end = layers_ - (stages_ - 1 - s);
      for (uint32_t first = s; first < (s == 0 ? 1 : last_end); ++first) {
        double cost = s == 0 ? costs_.embedding : 0;
        for (uint32_t end = first + 1; end <= last_end; ++end) {
          cost += costs_.layers[end - 1];
          const double whole = s + 1 == stages_ ? cost + costs_.head : cost;
          // Longer stages cost more still.
          if (cost > limit || combine(cost, 0) > here[first]) break;
          if (whole > limit || after[end] == kInfinity) continue;
          const double value = combine(whole, after[end]);
          // Of equal ones the longest stage.
          if (value > here[first]) continue;
          here[first] = value;
          taken_[s][first] = end - first;
        }
      }
      after.swap(here);
    }
    return after[0];
  }

  [[nodiscard]] std::vector<uint32_t> Stages() const {
    std::vector<uint32_t> out;
    uint32_t first = 0;
    for (uint32_t s = 0; s < stages_; ++s) {
      out.push_back(taken_[s][first]);
      first += out.back();
    }
    return out;
  }

 private:
  const LayerCosts& costs_;
  const uint32_t layers_;
  const uint32_t stages_;
  std::vector<std::vector<uint32_t>> taken_;  // [stages][layers]
};

}  // namespace

std::vector<uint32_t> BalanceLayers(const LayerCosts& costs, uint32_t stages) {
  StageTable table(costs, stages);
  const double largest =
      table.Solve(kInfinity, [](double cost, double rest) { return std::max(cost, rest); });
  table.Solve(largest, [](double cost, double rest) { return cost * cost + rest; });
  return table.Stages();
}

}  // namespace cleave

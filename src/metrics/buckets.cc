#include "metrics/buckets.h"

namespace cleave {

std::vector<double> SizeBuckets(uint32_t most) {
  std::vector<double> edges;
  for (uint64_t decade = 1; decade <= most; decade *= 10) {
    for (const uint64_t step : {1U, 2U, 5U}) {
      if (decade * step <= most) edges.push_back(static_cast<double>(decade * step));
    }
  }
  return edges;
}

const std::vector<double>& IterationTokenBuckets() {
  static const std::vector<double> kEdges = {1,   8,    16,   32,   64,   128,  256,
                                             512, 1024, 2048, 4096, 8192, 16384};
  return kEdges;
}

const std::vector<double>& ChoiceBuckets() {
  static const std::vector<double> kEdges = {1, 2, 5, 10, 20};
  return kEdges;
}

const std::vector<double>& PreemptionBuckets() {
  static const std::vector<double> kEdges = {1, 2, 3, 4, 5, 10, 20};
  return kEdges;
}

const std::vector<double>& FirstTokenBuckets() {
  static const std::vector<double> kEdges = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                             0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                             20,    40,    80,   160,  640,  2560};
  return kEdges;
}

const std::vector<double>& TokenTimeBuckets() {
  static const std::vector<double> kEdges = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                             0.3,  0.4,   0.5,  0.75,  1,   2.5,  5,
                                             7.5,  10,    20,   40,    80};
  return kEdges;
}

const std::vector<double>& RequestTimeBuckets() {
  static const std::vector<double> kEdges = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                             30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
  return kEdges;
}

const std::vector<double>& HttpFineBuckets() {
  static const std::vector<double> kEdges = {0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5,
                                             0.75, 1,     1.5,  2,     2.5, 3,    3.5,
                                             4,    4.5,   5,    7.5,   10,  30,   60};
  return kEdges;
}

const std::vector<double>& HttpCoarseBuckets() {
  static const std::vector<double> kEdges = {0.1, 0.5, 1};
  return kEdges;
}

}  // namespace cleave

#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace cleave {
namespace {

// What is longer is no misspelling, and would take long to compare.
constexpr size_t kLongestWord = 200;

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

std::string Lower(std::string_view word) {
  std::string lower(word);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return lower;
}

}  // namespace

std::string Nearest(std::string_view word, std::span<const std::string> known) {
  std::string best;
  if (word.size() > kLongestWord) return best;
  size_t best_distance = word.size() / 3 + 1;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::vector<std::string> NearestFew(std::string_view word, std::span<const std::string> known,
                                    size_t most) {
  const std::string wanted = Lower(word.substr(0, kLongestWord));
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& candidate : known) {
    const std::string lower = Lower(candidate);
    const bool inside = wanted.size() >= 2 && lower.find(wanted) != std::string::npos;
    ranked.emplace_back(inside ? 0 : 1 + EditDistance(wanted, lower), candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> few;
  for (size_t i = 0; i < ranked.size() && i < most; ++i) few.push_back(ranked[i].second);
  return few;
}

}  // namespace cleave

#include "base/text_table.h"

#include <algorithm>

namespace cleave {

std::string TextTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) {
      if (c > 0) text += "  ";
      text.append(widths[c] - row[c].size(), ' ').append(row[c]);
    }
    text += '\n';
  }
  return text;
}

}  // namespace cleave

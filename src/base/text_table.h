#pragma once
// TextTable: cells in columns as wide as their widest cell, for logs and terminals. Pure.

#include <string>
#include <vector>

namespace cleave {

// Rows of equally many cells, right-aligned, two spaces apart, each row ended by a newline. Widths
// are counted in bytes.
std::string TextTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace cleave

#pragma once
// Command lines as vLLM's users write them: short flags of several letters, underscores for dashes,
// numbers with a unit letter, a YAML file of defaults.
// Pure but for the YAML file; main thread. Fails with kInvalidArgument naming the flag and the fix.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cleave {

// "--max_num_seqs=8" becomes "--max-num-seqs=8", "--key=" becomes "--key" ""; what follows "--" is
// left alone. `aliases` are pairs of a short spelling and the long flag it stands for ("-tp",
// "--tensor-parallel-size").
struct FlagAlias {
  std::string_view alias;
  std::string_view flag;
};
std::vector<std::string> NormaliseArgs(std::span<const std::string> args,
                                       std::span<const FlagAlias> aliases);

// Checks that every flag in `args` (normalised) is one of `known`. A flag of vLLM that is not here
// is named as such; else the nearest known spelling is offered.
Status CheckFlags(std::span<const std::string> args, std::span<const std::string> known,
                  std::string_view verb);

// One flag of a YAML file: "file:line:column" of its value, and the arguments it stands for.
struct ConfigEntry {
  std::string where;
  std::vector<std::string> args;
  std::vector<std::string> items = {};  // of a list: its values
  std::string refusal = {};             // why its value cannot be taken
};

// A YAML mapping of long flag names (dashes or underscores) to values, in order. true and false
// become --flag and --no-flag, lists repeat the flag. Errors name file, line and column.
Result<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path);

// Equal but for the case of ASCII letters, as words that flags take are compared.
bool IsSameWord(std::string_view a, std::string_view b);

// 4096, 8k (8000), 8K (8192), 1.5m, 2G … as vLLM reads integers; lower-case letters are decimal,
// upper-case binary; an ending in "iB" or "B" is allowed.
Result<int64_t> ParseHumanInteger(std::string_view text);

}  // namespace cleave

#include "cli/args.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <set>

#include "base/nearest.h"
#include "cli/vllm_flags.h"

namespace cleave {
namespace {

constexpr size_t kMaxConfigBytes = 1U << 20U;

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// "-5", "-.5" and "- text" are values.
bool LooksLikeFlag(std::string_view arg) {
  return arg.size() > 1 && arg[0] == '-' && (arg[1] == '-' || IsLetter(arg[1]));
}

std::string_view FlagName(std::string_view arg) { return arg.substr(0, arg.find('=')); }

std::string Place(const std::string& path, const YAML::Mark& mark) {
  return mark.is_null() ? path : fmt::format("{}:{}:{}", path, mark.line + 1, mark.column + 1);
}

Status ConfigError(const std::string& path, const YAML::Mark& mark, std::string_view what) {
  return InvalidArgument(fmt::format("{}: {}", Place(path, mark), what));
}

// "--flag=value", so that a value is never taken for a flag; an empty one needs its own argument.
void AppendValue(const std::string& flag, const std::string& value,
                 std::vector<std::string>* args) {
  args->push_back(value.empty() ? flag : flag + "=" + value);
  if (value.empty()) args->push_back(value);
}

// Refused where the flags are known, so that one that is not here is named as such first.
void RefuseNested(const std::string& flag, ConfigEntry* entry) {
  entry->args = {flag};
  entry->items.clear();
  entry->refusal = flag + " needs a value or a list of values; a mapping is JSON in quotes here";
}

void ReadConfigEntry(const std::string& key, const YAML::Node& value, ConfigEntry* entry) {
  const std::string flag = "--" + key;
  std::vector<std::string>* const args = &entry->args;
  if (value.IsSequence()) {
    for (const YAML::Node& item : value) {
      if (!item.IsScalar()) return RefuseNested(flag, entry);
      AppendValue(flag, item.Scalar(), args);
      entry->items.push_back(item.Scalar());
    }
    return;
  }
  if (!value.IsScalar()) return RefuseNested(flag, entry);
  const std::string& text = value.Scalar();
  if (IsSameWord(text, "true")) {
    args->push_back(flag);
  } else if (IsSameWord(text, "false")) {
    args->push_back("--no-" + flag.substr(2));
  } else {
    AppendValue(flag, text, args);
  }
}

// The text of a file or pipe; bounded, as it may be any.
Result<std::string> ReadConfigText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return NotFound(path + ": no such config file, or it cannot be read");
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxConfigBytes) {
    return InvalidArgument(fmt::format("{}: a config file has at most {} bytes; this is not one",
                                       path, kMaxConfigBytes));
  }
  return text;
}

Status AppendConfig(const std::string& path, const YAML::Node& root,
                    std::vector<ConfigEntry>* entries) {
  std::set<std::string> seen;
  for (const auto& entry : root) {
    const YAML::Mark mark = entry.first.Mark();
    if (!entry.first.IsScalar()) return ConfigError(path, mark, "a flag name must be plain text");
    std::string key = entry.first.Scalar();
    std::replace(key.begin(), key.end(), '_', '-');
    if (key.empty()) return ConfigError(path, mark, "a flag has a name");
    if (key == "config" || key == "help") {
      return ConfigError(path, mark, key + " belongs on the command line, not in a config file");
    }
    if (!seen.insert(key).second) return ConfigError(path, mark, key + " is given twice");
    ConfigEntry read{.where = Place(path, entry.second.Mark()), .args = {}};
    ReadConfigEntry(key, entry.second, &read);
    entries->push_back(std::move(read));
  }
  return OkStatus();
}

}  // namespace

std::vector<std::string> NormaliseArgs(std::span<const std::string> args,
                                       std::span<const FlagAlias> aliases) {
  std::vector<std::string> out;
  bool literal = false;
  for (const std::string& arg : args) {
    if (literal || arg == "--" || !LooksLikeFlag(arg)) {
      literal = literal || arg == "--";
      out.push_back(arg);
      continue;
    }
    const size_t equals = arg.find('=');
    std::string flag(FlagName(arg));
    if (flag.starts_with("--")) std::replace(flag.begin(), flag.end(), '_', '-');
    for (const FlagAlias& alias : aliases) {
      if (flag == alias.alias) flag = alias.flag;
    }
    if (equals == std::string::npos) {
      out.push_back(std::move(flag));
    } else {
      AppendValue(flag, arg.substr(equals + 1), &out);
    }
  }
  return out;
}

Status CheckFlags(std::span<const std::string> args, std::span<const std::string> known,
                  std::string_view verb) {
  for (const std::string& arg : args) {
    if (arg == "--") break;
    if (!LooksLikeFlag(arg)) continue;
    const std::string_view flag = FlagName(arg);
    if (std::find(known.begin(), known.end(), flag) != known.end()) continue;
    if (IsVllmFlag(flag)) {
      return InvalidArgument(
          fmt::format("{} is a flag of vLLM that cleave {} does not have yet; cleave {} --help "
                      "lists what is here",
                      flag, verb, verb));
    }
    const std::string nearest = Nearest(flag, known);
    return InvalidArgument(
        nearest.empty() ? fmt::format("unknown flag {}; cleave {} --help lists them", flag, verb)
                        : fmt::format("unknown flag {}; did you mean {}?", flag, nearest));
  }
  return OkStatus();
}

Result<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path) {
  std::vector<ConfigEntry> entries;
  ASSIGN_OR_RETURN(const std::string text, ReadConfigText(path));
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return entries;
    if (!root.IsMap()) return ConfigError(path, root.Mark(), "expected a mapping of flags");
    RETURN_IF_ERROR(AppendConfig(path, root, &entries));
  } catch (const YAML::Exception& error) {
    return ConfigError(path, error.mark, error.msg);
  }
  return entries;
}

bool IsSameWord(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

Result<int64_t> ParseHumanInteger(std::string_view text) {
  const auto bad = [&] {
    return InvalidArgument(fmt::format(
        "'{}' is not a whole number; write 4096, 8k (8000), 8K (8192), 1.5G or 2GiB", text));
  };
  std::string_view rest = text;
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return bad();
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  if (rest.ends_with("iB")) {
    rest.remove_suffix(2);
  } else if (rest.ends_with("B")) {
    rest.remove_suffix(1);
  }
  double unit = 1;
  if (rest.size() > 1) return bad();
  if (rest.size() == 1) {
    constexpr std::string_view kDecimal = "kmgt";
    constexpr std::string_view kBinary = "KMGT";
    const size_t decimal = kDecimal.find(rest[0]);
    const size_t binary = kBinary.find(rest[0]);
    if (decimal != std::string_view::npos) {
      unit = std::pow(1000.0, static_cast<double>(decimal + 1));
    } else if (binary != std::string_view::npos) {
      unit = std::pow(1024.0, static_cast<double>(binary + 1));
    } else {
      return bad();
    }
  }
  value *= unit;
  if (value != std::floor(value) || std::abs(value) > 9.0e18) return bad();
  return static_cast<int64_t>(value);
}

}  // namespace cleave

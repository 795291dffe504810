#pragma once
// OptionTable: a verb's flags, one row each: spelling, section, help and the field it fills.
// Parsing,
// --help, the YAML config file's keys and the "did you mean" of a wrong spelling come from the
// rows.
//
//   OptionTable table("serve", "Serve a model.");
//   table.Positional("MODEL", "…", &options.model);
//   table.Count("Engine", "--max-num-seqs", "…", &options.max_num_seqs, 1, 1 << 16);
//   Result<Parsed> parsed = table.Parse(args);
//
// Main thread. Fields outlive the table.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/args.h"

namespace cleave {

class OptionTable {
 public:
  enum class Parsed { kRun, kHelpShown };

  OptionTable(std::string verb, const std::string& description);
  ~OptionTable();

  void Positional(const std::string& name, const std::string& help, std::string* value);
  // kWithCommas: several values as one text; the YAML file may hold a list.
  enum class Values { kOne, kWithCommas };
  void Text(const std::string& section, const std::string& flag, const std::string& help,
            std::string* value, Values values = Values::kOne);
  // May be given several times; the YAML file may hold a list.
  void TextList(const std::string& section, const std::string& flag, const std::string& help,
                std::vector<std::string>* value);
  // In any case of letters; the field gets the choice as it is spelled here.
  void OneOf(const std::string& section, const std::string& flag, const std::string& help,
             std::vector<std::string> choices, std::string* value);
  // A whole number, with unit letters (ParseHumanInteger), in [least, most].
  void Count(const std::string& section, const std::string& flag, const std::string& help,
             int64_t least, int64_t most, int64_t* value);
  // The same; "auto" and -1 leave it empty.
  void CountOrAuto(const std::string& section, const std::string& flag, const std::string& help,
                   int64_t least, int64_t most, std::optional<int64_t>* value);
  void Number(const std::string& section, const std::string& flag, const std::string& help,
              double least, double most, double* value);
  // --name and --no-name, or --name=true and --name=false.
  void Switch(const std::string& section, const std::string& flag, const std::string& help,
              bool* value);
  // A second spelling of a flag: "-tp".
  void Alias(std::string_view alias, std::string_view flag);

  // Lines after the options in --help: examples, the way on.
  void Footer(const std::string& text);

  // Handles --help (printed to standard output) and --config FILE, whose values the command line
  // overrides.
  Result<Parsed> Parse(const std::vector<std::string>& args);
  // An error found later: where it names a flag whose value came from a config file, the place in
  // that file stands before it.
  [[nodiscard]] Status NamePlace(const Status& status) const;
  [[nodiscard]] const std::vector<std::string>& flags() const { return flags_; }

 private:
  struct App;
  Status OpenSwitches(std::vector<std::string>* args) const;
  Status ParseArgs(std::vector<std::string> args);
  Status TakeList(const std::vector<std::string>& items, std::vector<std::string>* args) const;
  Status AppendConfigFile(const std::string& path, std::vector<std::string>* all);

  std::string verb_;
  std::unique_ptr<App> app_;
  std::vector<std::string> flags_;     // every long spelling
  std::vector<std::string> switches_;  // their positive spellings
  std::vector<std::string> lists_;
  std::vector<std::string> comma_lists_;
  std::vector<FlagAlias> aliases_;
  std::map<std::string, std::string> places_;  // of flags that config files set, unless overridden
  std::string config_path_;
};

}  // namespace cleave

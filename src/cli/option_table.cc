#include "cli/option_table.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <utility>

namespace cleave {
namespace {

constexpr std::string_view kConfigIs = "--config=";

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string Shown(int64_t value) { return std::to_string(value); }

int64_t CheckedCount(const std::string& flag, const std::string& text, int64_t least,
                     int64_t most) {
  const Result<int64_t> value = ParseHumanInteger(text);
  if (!value.ok()) {
    throw CLI::ValidationError(
        flag, fmt::format("{}; {} to {} are taken", value.status().message(), least, most));
  }
  if (*value < least || *value > most) {
    throw CLI::ValidationError(flag, fmt::format("{} is outside {} to {}", *value, least, most));
  }
  return *value;
}

// CLI11 shows what a negative spelling is worth: "--no-x{-1}".
class Formatter final : public CLI::Formatter {
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, positional);
    const size_t worth = name.find("{-1}");
    if (worth != std::string::npos) name.erase(worth, 4);
    return name;
  }
};

}  // namespace

struct OptionTable::App {
  explicit App(const std::string& description) : cli(description) {
    cli.formatter(std::make_shared<Formatter>());
  }

  // One row whose value arrives as text; the last one given wins.
  CLI::Option* Row(const std::string& section, const std::string& flag, const std::string& help,
                   const std::string& type, const std::string& shown,
                   const std::function<void(const std::string&)>& set) {
    CLI::Option* option = cli.add_option_function<std::string>(flag, set, help);
    option->group(section)->type_name(type)->take_last();
    if (!shown.empty()) option->default_str(shown);
    return option;
  }

  CLI::App cli;
};

OptionTable::OptionTable(std::string verb, const std::string& description)
    : verb_(std::move(verb)), app_(std::make_unique<App>(description)) {
  app_->cli.name("cleave " + verb_);
  app_->cli.get_formatter()->column_width(34);
  app_->cli.set_help_flag("-h,--help", "This text")->group("General");
  flags_ = {"--help", "-h"};
  Text("General", "--config", "YAML file of these flags; the command line overrides it",
       &config_path_);
}

OptionTable::~OptionTable() = default;

void OptionTable::Positional(const std::string& name, const std::string& help, std::string* value) {
  app_->cli.add_option(name, *value, help)->type_name("");
}

void OptionTable::Text(const std::string& section, const std::string& flag, const std::string& help,
                       std::string* value, Values values) {
  flags_.push_back(flag);
  if (values == Values::kWithCommas) comma_lists_.push_back(flag);
  app_->Row(section, flag, help, "TEXT", *value, [value](const std::string& t) { *value = t; });
}

void OptionTable::TextList(const std::string& section, const std::string& flag,
                           const std::string& help, std::vector<std::string>* value) {
  flags_.push_back(flag);
  lists_.push_back(flag);
  app_->cli.add_option(flag, *value, help)
      ->group(section)
      ->type_name("TEXT ...")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check([](const std::string& text) { return text.empty() ? "must not be empty" : ""; });
}

void OptionTable::OneOf(const std::string& section, const std::string& flag,
                        const std::string& help, std::vector<std::string> choices,
                        std::string* value) {
  flags_.push_back(flag);
  const std::string shown = fmt::format("{}", fmt::join(choices, "|"));
  app_->Row(section, flag, help, shown, *value,
            [flag, value, choices = std::move(choices)](const std::string& text) {
              const auto choice =
                  std::find_if(choices.begin(), choices.end(),
                               [&](const std::string& c) { return IsSameWord(c, text); });
              if (choice == choices.end()) {
                throw CLI::ValidationError(
                    flag, fmt::format("'{}' is not one of {}", text, fmt::join(choices, ", ")));
              }
              *value = *choice;
            });
}

void OptionTable::Count(const std::string& section, const std::string& flag,
                        const std::string& help, int64_t least, int64_t most, int64_t* value) {
  flags_.push_back(flag);
  app_->Row(section, flag, help, "N", Shown(*value),
            [=](const std::string& text) { *value = CheckedCount(flag, text, least, most); });
}

void OptionTable::CountOrAuto(const std::string& section, const std::string& flag,
                              const std::string& help, int64_t least, int64_t most,
                              std::optional<int64_t>* value) {
  flags_.push_back(flag);
  app_->Row(section, flag, help, "N|auto", *value ? Shown(**value) : "auto",
            [=](const std::string& text) {
              if (IsSameWord(text, "auto") || text == "-1") {
                value->reset();
              } else {
                *value = CheckedCount(flag, text, least, most);
              }
            });
}

void OptionTable::Number(const std::string& section, const std::string& flag,
                         const std::string& help, double least, double most, double* value) {
  flags_.push_back(flag);
  app_->Row(section, flag, help, "X", fmt::format("{}", *value), [=](const std::string& text) {
    double parsed = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
    if (error != std::errc() || end != text.data() + text.size() || !(parsed >= least) ||
        !(parsed <= most)) {
      throw CLI::ValidationError(
          flag, fmt::format("'{}' is not a number in {} to {}", text, least, most));
    }
    *value = parsed;
  });
}

void OptionTable::Switch(const std::string& section, const std::string& flag,
                         const std::string& help, bool* value) {
  const std::string off = "--no-" + flag.substr(2);
  flags_.push_back(flag);
  flags_.push_back(off);
  switches_.push_back(flag);
  app_->cli
      .add_flag_function(
          flag + "," + off + "{-1}", [value](std::int64_t count) { *value = count > 0; }, help)
      ->group(section)
      ->take_last()
      ->default_str(*value ? "on" : "off");
}

void OptionTable::Alias(std::string_view alias, std::string_view flag) {
  flags_.emplace_back(alias);
  aliases_.push_back({alias, flag});
}

void OptionTable::Footer(const std::string& text) { app_->cli.footer("\n" + text); }

// "--x=true" becomes "--x", "--x=false" "--no-x".
Status OptionTable::OpenSwitches(std::vector<std::string>* args) const {
  for (std::string& arg : *args) {
    if (arg == "--") break;
    const size_t equals = arg.find('=');
    if (equals == std::string::npos) continue;
    const std::string flag = arg.substr(0, equals);
    const bool off = flag.starts_with("--no-");
    const std::string on = off ? "--" + flag.substr(5) : flag;
    if (std::find(switches_.begin(), switches_.end(), on) == switches_.end()) continue;
    if (off) return InvalidArgument(flag + " takes no value");
    const std::string value = arg.substr(equals + 1);
    const bool yes = IsSameWord(value, "true");
    if (!yes && !IsSameWord(value, "false")) {
      return InvalidArgument(fmt::format("{}: '{}' is not true or false", flag, value));
    }
    arg = yes ? flag : "--no-" + flag.substr(2);
  }
  return OkStatus();
}

Status OptionTable::ParseArgs(std::vector<std::string> args) {
  RETURN_IF_ERROR(CheckFlags(args, flags_, verb_));
  RETURN_IF_ERROR(OpenSwitches(&args));
  std::reverse(args.begin(), args.end());  // CLI11 takes them from the back
  try {
    app_->cli.parse(std::move(args));
  } catch (const CLI::CallForHelp&) {
    throw;
  } catch (const std::exception& error) {  // CLI11's, or the standard library's through it
    return InvalidArgument(error.what());
  }
  return OkStatus();
}

// The arguments of a YAML list: of a flag that takes one value they would silently be its last.
Status OptionTable::TakeList(const std::vector<std::string>& items,
                             std::vector<std::string>* args) const {
  if (items.empty()) return OkStatus();
  const std::string flag = args->front().substr(0, args->front().find('='));
  const auto is_in = [&](const std::vector<std::string>& flags) {
    return std::find(flags.begin(), flags.end(), flag) != flags.end();
  };
  if (is_in(lists_) || !is_in(flags_)) return OkStatus();
  if (!is_in(comma_lists_)) return InvalidArgument(flag + " takes one value, not a list");
  *args = {fmt::format("{}={}", flag, fmt::join(items, ","))};
  return OkStatus();
}

// Each entry is parsed by itself first, so that what is wrong with it names its place; then all are
// parsed with the command line, which overrides them.
Status OptionTable::AppendConfigFile(const std::string& path, std::vector<std::string>* all) {
  ASSIGN_OR_RETURN(const std::vector<ConfigEntry> entries, ReadConfigFile(path));
  for (const ConfigEntry& entry : entries) {
    std::vector<std::string> args = NormaliseArgs(entry.args, aliases_);
    RETURN_IF_ERROR(CheckFlags(args, flags_, verb_).Annotate(entry.where));
    if (!entry.refusal.empty()) return InvalidArgument(entry.refusal).Annotate(entry.where);
    RETURN_IF_ERROR(TakeList(entry.items, &args).Annotate(entry.where));
    RETURN_IF_ERROR(ParseArgs(args).Annotate(entry.where));
    all->insert(all->end(), args.begin(), args.end());
    if (!args.empty()) places_[args[0].substr(0, args[0].find('='))] = entry.where;
  }
  return OkStatus();
}

Status OptionTable::NamePlace(const Status& status) const {
  for (const auto& [flag, where] : places_) {
    const std::string& message = status.message();
    for (size_t at = message.find(flag); at != std::string::npos; at = message.find(flag, at + 1)) {
      const size_t end = at + flag.size();
      const bool longer = end < message.size() && (message[end] == '-' || IsLetter(message[end]));
      if (!longer) return status.Annotate(where);
    }
  }
  return status;
}

Result<OptionTable::Parsed> OptionTable::Parse(const std::vector<std::string>& args) {
  const std::vector<std::string> own = NormaliseArgs(args, aliases_);
  std::vector<std::string> all;
  for (size_t i = 0; i < own.size() && own[i] != "--"; ++i) {
    std::string path;
    if (own[i].starts_with(kConfigIs)) {
      path = own[i].substr(kConfigIs.size());
    } else if (own[i] != "--config") {
      continue;
    } else if (i + 1 < own.size()) {
      path = own[i + 1];
    }
    if (path.empty()) return InvalidArgument("--config needs a file name");
    RETURN_IF_ERROR(AppendConfigFile(path, &all));
  }
  for (const std::string& arg : own) {
    if (arg == "--") break;
    places_.erase(arg.substr(0, arg.find('=')));
  }
  all.insert(all.end(), own.begin(), own.end());
  try {
    RETURN_IF_ERROR(ParseArgs(std::move(all)));
  } catch (const CLI::CallForHelp&) {
    std::cout << app_->cli.help() << std::flush;
    return Parsed::kHelpShown;
  }
  return Parsed::kRun;
}

}  // namespace cleave

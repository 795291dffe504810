#pragma once
// Fetches a model with the `hf` command of PyPI's huggingface-hub, when that is installed.
//
// Blocks until the command ends, at most kFetchDeadline; its progress goes to our standard error.
// Started without a shell: names are arguments, never text to be parsed.
// Fails: kNotFound (no such command), kUnavailable (it failed, with its exit code),
// kDeadlineExceeded (it was stopped).

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/format/hub_cache.h"

namespace cleave {

// A model of hundreds of gigabytes over a slow line.
inline constexpr std::chrono::hours kFetchDeadline{24};

// Full path of a program on PATH.
std::optional<std::string> FindOnPath(const std::string& program);

// The command's arguments after its name.
std::vector<std::string> FetchArguments(const HubName& name);

Status FetchWithHf(const std::string& hf_path, const HubName& name);

}  // namespace cleave

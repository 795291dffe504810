#pragma once
// One entry of a catalogue's YAML as facts. Inside of Catalogue. Pure; any thread.
// Fails with kInvalidArgument: file, line, column and field.

#include <yaml-cpp/yaml.h>

#include <string>

#include "base/status.h"
#include "plan/device_facts.h"
#include "plan/model_facts.h"

namespace cleave {

Result<DeviceFacts> ReadDevice(const YAML::Node& node, const std::string& file);
Result<ModelFacts> ReadModel(const YAML::Node& node, const std::string& file);

}  // namespace cleave

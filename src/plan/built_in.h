#pragma once
// The text of data/*.yaml, as compiled in.

#include <string_view>

namespace cleave {

extern const std::string_view kHardwareYaml;
extern const std::string_view kModelsYaml;

}  // namespace cleave

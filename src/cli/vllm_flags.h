#pragma once
// Whether vLLM knows a flag: so that one that Cleave does not have yet is named as such, not as
// unknown. Pure; any thread.

#include <string_view>

namespace cleave {

// `flag` with its dashes: "--enable-lora", "-tp"; also a level ("-O3") and one key of a flag that
// takes JSON ("--compilation-config.mode", "-cc.mode").
bool IsVllmFlag(std::string_view flag);

}  // namespace cleave

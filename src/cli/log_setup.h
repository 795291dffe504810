#pragma once
// Logging of the whole process: lines for people, or one JSON object a line, on standard error.
// Main thread; the last call counts.

#include <string>

namespace cleave {

// level: trace, debug, info, warning, error. format: text or json ({"time", "level", "message"}).
void SetUpLogging(const std::string& level, const std::string& format);

}  // namespace cleave

#include "metrics/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace cleave {
namespace {

// Fields of /proc/self/stat after the command's closing parenthesis, which begins at field 3
// (proc(5)): utime 14, stime 15, starttime 22, vsize 23, rss 24.
void ReadStat(ProcessFacts* facts) {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  const size_t close = text.rfind(')');
  if (close == std::string::npos) return;
  std::istringstream fields(text.substr(close + 1));
  std::string skipped;
  const auto hz = static_cast<double>(sysconf(_SC_CLK_TCK));
  double start_ticks = 0;
  for (int field = 3; field <= 24; ++field) {
    double value = 0;
    if (field == 3) {
      fields >> skipped;  // the state, a letter
      continue;
    }
    fields >> value;
    if (field == 14 || field == 15) facts->cpu_seconds += value / hz;
    if (field == 22) start_ticks = value;
    if (field == 23) facts->virtual_bytes = value;
    if (field == 24) facts->resident_bytes = value * static_cast<double>(sysconf(_SC_PAGESIZE));
  }
  std::ifstream boot("/proc/stat");
  for (std::string line; std::getline(boot, line);) {
    if (line.rfind("btime ", 0) != 0) continue;
    facts->start_time_seconds = std::strtod(line.c_str() + 6, nullptr) + start_ticks / hz;
  }
}

}  // namespace

ProcessFacts ReadProcessFacts() {
  ProcessFacts facts;
  ReadStat(&facts);
  std::error_code ec;
  for (std::filesystem::directory_iterator it("/proc/self/fd", ec), end; !ec && it != end;
       it.increment(ec)) {
    facts.open_fds += 1;
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.max_fds = static_cast<double>(limit.rlim_cur);
  return facts;
}

}  // namespace cleave

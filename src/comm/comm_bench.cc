// Time of one all_reduce between processes, each pinned to a core, as rank 0 sees it.
//   comm_bench [--cores 0,1] [--rounds 20000] [--one-shot BYTES] [ROWSxCOLUMNS ...]
// One line a shape: "1x576 2304 B one_shot median_us 0.81 p99_us 1.40". Without --one-shot each
// shape is timed in one shot and in two.
#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/shm_group.h"
#include "comm/world.h"

namespace cleave {
namespace {

struct Shape {
  uint32_t rows = 1;
  uint32_t columns = 576;
};

struct BenchOptions {
  std::vector<int> cores = {0, 1};
  uint32_t rounds = 20'000;
  std::optional<uint64_t> one_shot_max_bytes;
  std::vector<Shape> shapes;
};

template <typename T>
bool ParseNumber(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

bool ParseShape(std::string_view text, Shape* shape) {
  const size_t by = text.find('x');
  return by != std::string_view::npos && ParseNumber(text.substr(0, by), &shape->rows) &&
         ParseNumber(text.substr(by + 1), &shape->columns);
}

bool ParseCores(std::string_view text, std::vector<int>* cores) {
  cores->clear();
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (!ParseNumber(text.substr(0, comma), &cores->emplace_back())) return false;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return !cores->empty();
}

std::optional<BenchOptions> ParseArgs(int argc, char** argv) {
  BenchOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const std::string_view value = i + 1 < argc ? argv[i + 1] : "";
    bool good = true;
    if (arg == "--cores") {
      good = ParseCores(value, &options.cores);
      ++i;
    } else if (arg == "--rounds") {
      good = ParseNumber(value, &options.rounds) && options.rounds > 0;
      ++i;
    } else if (arg == "--one-shot") {
      good = ParseNumber(value, &options.one_shot_max_bytes.emplace());
      ++i;
    } else {
      good = ParseShape(arg, &options.shapes.emplace_back());
    }
    if (!good) return std::nullopt;
  }
  if (options.shapes.empty()) options.shapes = {{1, 576}};
  return options;
}

void Pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(core) % CPU_SETSIZE, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// Times of `rounds` reductions after a warm-up, sorted.
Result<std::vector<uint64_t>> TimesOf(Group* group, const Shape& shape, uint32_t rounds) {
  const std::vector<int64_t> totals(size_t{shape.rows} * shape.columns, 12345);
  const std::vector<uint8_t> wide(shape.rows, 0);
  const std::vector<int32_t> shift(shape.rows, 20);
  std::vector<float> out(totals.size());
  const IntegerRows mine = {shape.rows,    shape.columns, totals.data(),
                            shape.columns, wide.data(),   shift.data()};
  std::vector<uint64_t> times(rounds);
  for (uint32_t i = 0; i < rounds / 10 + 100; ++i) {
    RETURN_IF_ERROR(group->AllReduce(mine, out.data(), shape.columns));
  }
  for (uint64_t& time : times) {
    const uint64_t start = SteadyNanos();
    RETURN_IF_ERROR(group->AllReduce(mine, out.data(), shape.columns));
    time = SteadyNanos() - start;
  }
  std::sort(times.begin(), times.end());
  return times;
}

Status RunRank(const SharedMemory& memory, uint32_t rank, const BenchOptions& options) {
  Pin(options.cores[rank]);
  ASSIGN_OR_RETURN(World world, World::Join(memory, rank, 1));
  world.Enter(RankPhase::kComputing);
  std::vector<uint64_t> limits = {std::numeric_limits<uint64_t>::max(), 0};
  if (options.one_shot_max_bytes.has_value()) limits = {*options.one_shot_max_bytes};
  RETURN_IF_ERROR(world.MeasureCrossovers());  // and how to store
  for (const Shape& shape : options.shapes) {
    for (const uint64_t limit : limits) {
      world.SetOneShotMaxBytes(limit);
      Group* group = world.group(Axis::kTp);
      ASSIGN_OR_RETURN(const std::vector<uint64_t> times, TimesOf(group, shape, options.rounds));
      if (rank != 0) continue;
      fmt::print("{}x{} {} B {} median_us {:.3f} p99_us {:.3f}\n", shape.rows, shape.columns,
                 uint64_t{shape.rows} * shape.columns * 4,
                 IsOneShot(shape.rows, shape.columns, {.one_shot_max_bytes = limit}) ? "one_shot"
                                                                                     : "two_shot",
                 static_cast<double>(times[times.size() / 2]) * 1e-3,
                 static_cast<double>(times[times.size() * 99 / 100]) * 1e-3);
    }
  }
  // Nobody leaves before all are done.
  const std::vector<uint64_t> sizes(options.cores.size(), 1);
  std::vector<std::byte> out(options.cores.size());
  return world.group(Axis::kTp)->AllGather(std::as_bytes(std::span("x", 1)), sizes, out.data());
}

int RunBench(const BenchOptions& options) {
  WorldOptions world;
  world.split.tp = static_cast<uint32_t>(options.cores.size());
  world.deadline_ms = 60'000;
  const Result<SharedMemory> memory = World::Allocate(world, SharedMemoryKind::kProcesses);
  if (!memory.ok()) {
    fmt::print(stderr, "{}\n", memory.status().message());
    return 1;
  }
  for (uint32_t rank = 1; rank < world.split.tp; ++rank) {
    if (fork() == 0) _exit(RunRank(*memory, rank, options).ok() ? 0 : 1);
  }
  const Status status = RunRank(*memory, 0, options);
  bool all = status.ok();
  for (int code = 0; wait(&code) > 0;) all = all && code == 0;
  if (!status.ok()) fmt::print(stderr, "{}\n", status.message());
  return all ? 0 : 1;
}

}  // namespace
}  // namespace cleave

int main(int argc, char** argv) {
  const std::optional<cleave::BenchOptions> options = cleave::ParseArgs(argc, argv);
  if (options.has_value()) return cleave::RunBench(*options);
  fmt::print(stderr,
             "usage: comm_bench [--cores 0,1] [--rounds N] [--one-shot BYTES] [1x576 ...]\n");
  return 2;
}

#include "comm/comm_test_support.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/rng.h"
#include "comm/loopback_group.h"

namespace cleave {
namespace {

using Bytes = std::vector<std::byte>;

Bytes RandomBytes(uint64_t size, uint64_t seed) {
  RngStream rng(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.Next());
  return bytes;
}

void Append(Bytes* all, const void* data, size_t size) {
  const auto* at = static_cast<const std::byte*>(data);
  all->insert(all->end(), at, at + size);
}

uint64_t SeedOf(const ScriptStep& step, uint32_t a, uint32_t b) {
  return MixBits(step.seed ^ (uint64_t{a} << 32U) ^ b);
}

// reduce_scatter: rows of each member.
std::vector<Range> PartsOf(const ScriptStep& step) {
  std::vector<Range> parts;
  uint32_t begin = 0;
  for (const uint64_t size : step.sizes) {
    const auto end = static_cast<uint32_t>(begin + size);
    parts.push_back({begin, end});
    begin = end;
  }
  return parts;
}

Status RunReduction(Group* group, const ScriptStep& step, Bytes* arrived) {
  const TestRows mine =
      MakeRows(step.rows, step.columns, step.wide_percent, step.seed, group->rank());
  const size_t stride = step.columns + 3;
  std::vector<float> out(step.rows * stride, 7.0F);  // what lies between rows must stay
  if (step.op == CommOp::kAllReduce) {
    RETURN_IF_ERROR(group->AllReduce(mine.View(), out.data(), stride));
  } else {
    RETURN_IF_ERROR(group->ReduceScatter(mine.View(), PartsOf(step), out.data(), stride));
  }
  Append(arrived, out.data(), out.size() * sizeof(float));
  return OkStatus();
}

Status RunGather(Group* group, const ScriptStep& step, Bytes* arrived) {
  const uint32_t me = group->rank();
  uint64_t total = 0;
  for (const uint64_t size : step.sizes) total += size;
  Bytes out(total);
  const Bytes mine = RandomBytes(step.sizes[me], SeedOf(step, me, 0));
  RETURN_IF_ERROR(group->AllGather(mine, step.sizes, out.data()));
  Append(arrived, out.data(), out.size());
  return OkStatus();
}

Status RunAllToAll(Group* group, const ScriptStep& step, Bytes* arrived) {
  const uint32_t me = group->rank();
  const uint32_t n = group->size();
  std::vector<uint64_t> send_sizes(n);
  std::vector<uint64_t> receive_sizes(n);
  Bytes send;
  uint64_t total = 0;
  for (uint32_t other = 0; other < n; ++other) {
    send_sizes[other] = step.sizes[me * n + other];
    receive_sizes[other] = step.sizes[other * n + me];
    total += receive_sizes[other];
    const Bytes part = RandomBytes(send_sizes[other], SeedOf(step, me, other));
    Append(&send, part.data(), part.size());
  }
  Bytes receive(total);
  RETURN_IF_ERROR(group->AllToAll(send.data(), send_sizes, receive.data(), receive_sizes));
  Append(arrived, receive.data(), receive.size());
  return OkStatus();
}

Status RunMessage(Group* group, const ScriptStep& step, Bytes* arrived) {
  const uint32_t me = group->rank();
  if (step.from == step.to) return OkStatus();
  if (me == step.from) return group->Send(step.to, RandomBytes(step.sizes[0], step.seed));
  if (me != step.to) return OkStatus();
  Bytes bytes(step.sizes[0]);
  RETURN_IF_ERROR(group->Receive(step.from, bytes));
  Append(arrived, bytes.data(), bytes.size());
  return OkStatus();
}

}  // namespace

WorldOptions TpWorld(uint32_t size) {
  WorldOptions options;
  options.split.tp = size;
  options.deadline_ms = 60'000;
  return options;
}

std::vector<Status> RunWorld(const WorldOptions& options, const std::function<Status(World*)>& fn) {
  const uint32_t ranks = options.split.ranks_per_replica();
  std::vector<Status> statuses(ranks);
  Result<SharedMemory> memory = World::Allocate(options, SharedMemoryKind::kThreads);
  if (!memory.ok()) return {memory.status()};
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Result<World> world = World::Join(*memory, rank, options.epoch);
      if (!world.ok()) {
        statuses[rank] = world.status();
        return;
      }
      world->Enter(RankPhase::kComputing);
      statuses[rank] = fn(&*world);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

TestRows MakeRows(uint32_t rows, uint32_t columns, uint32_t wide_percent, uint64_t seed,
                  uint32_t member) {
  TestRows made = {rows, columns, columns + 5U, {}, {}, {}};
  made.totals.resize(rows * made.stride);
  RngStream common(seed);
  RngStream own(MixBits(seed + member + 1));
  for (uint32_t row = 0; row < rows; ++row) {
    made.shift.push_back(static_cast<int32_t>(common.Below(121)) - 60);
    made.wide.push_back(own.Below(100) < wide_percent ? 1 : 0);
    for (uint32_t column = 0; column < columns; ++column) {
      const uint32_t bits = made.wide[row] != 0 ? 7 + static_cast<uint32_t>(own.Below(50)) : 33;
      // Arithmetic shifts: both signs, down to the whole range of the width.
      made.totals[row * made.stride + column] = static_cast<int64_t>(own.Next()) >> bits;
      if (made.wide[row] == 0 && own.Below(16) == 0) {
        made.totals[row * made.stride + column] = own.Below(2) == 0 ? INT32_MIN : INT32_MAX;
      }
    }
  }
  return made;
}

std::vector<ScriptStep> MakeScript(uint32_t members, uint32_t steps, uint32_t most_bytes,
                                   uint64_t seed) {
  RngStream rng(seed);
  std::vector<ScriptStep> script;
  // Sizes of all magnitudes, zero too.
  const auto size = [&] { return rng.Below(1 + (uint64_t{most_bytes} >> rng.Below(14))); };
  for (uint32_t i = 0; i < steps; ++i) {
    constexpr std::array<CommOp, 6> kOps = {CommOp::kAllReduce,     CommOp::kAllReduce,
                                            CommOp::kReduceScatter, CommOp::kAllGather,
                                            CommOp::kAllToAll,      CommOp::kSend};
    ScriptStep step = {.op = kOps[rng.Below(kOps.size())]};
    step.seed = rng.Next();
    if (step.op == CommOp::kAllReduce || step.op == CommOp::kReduceScatter) {
      const auto elements = static_cast<uint32_t>(1 + size() / 4);
      step.rows = static_cast<uint32_t>(rng.Below(std::min(elements, 40U) + 1));
      step.columns = elements / std::max(step.rows, 1U);
      step.wide_percent = rng.Below(2) == 0 ? 0 : static_cast<uint32_t>(rng.Below(101));
      uint64_t left = step.rows;
      for (uint32_t member = 0; step.op == CommOp::kReduceScatter && member < members; ++member) {
        step.sizes.push_back(member + 1 == members ? left : rng.Below(left + 1));
        left -= step.sizes.back();
      }
    } else if (step.op == CommOp::kAllGather) {
      for (uint32_t member = 0; member < members; ++member) step.sizes.push_back(size());
    } else if (step.op == CommOp::kAllToAll) {
      for (uint32_t pair = 0; pair < members * members; ++pair) {
        step.sizes.push_back(size() / members);
      }
    } else {
      step.from = static_cast<uint32_t>(rng.Below(members));
      step.to = static_cast<uint32_t>(rng.Below(members));
      step.sizes.push_back(size());
    }
    script.push_back(std::move(step));
  }
  return script;
}

Result<std::vector<std::byte>> RunScript(Group* group, const std::vector<ScriptStep>& script) {
  Bytes arrived;
  for (const ScriptStep& step : script) {
    switch (step.op) {
      case CommOp::kAllReduce:
      case CommOp::kReduceScatter:
        RETURN_IF_ERROR(RunReduction(group, step, &arrived));
        break;
      case CommOp::kAllGather:
        RETURN_IF_ERROR(RunGather(group, step, &arrived));
        break;
      case CommOp::kAllToAll:
        RETURN_IF_ERROR(RunAllToAll(group, step, &arrived));
        break;
      case CommOp::kSend:
        RETURN_IF_ERROR(RunMessage(group, step, &arrived));
        break;
    }
  }
  return arrived;
}

std::vector<std::vector<std::byte>> ExpectedOf(uint32_t members,
                                               const std::vector<ScriptStep>& script) {
  LoopbackHub hub({.size = members, .deadline_ms = 60'000});
  std::vector<Bytes> arrived(members);
  std::vector<std::thread> threads;
  for (uint32_t member = 0; member < members; ++member) {
    threads.emplace_back([&, member] {
      const std::unique_ptr<Group> group = hub.Member(member);
      Result<Bytes> bytes = RunScript(group.get(), script);
      if (bytes.ok()) arrived[member] = std::move(bytes).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return arrived;
}

std::vector<Metered> BillOf(const std::vector<ScriptStep>& script, uint32_t members,
                            uint32_t member, uint64_t one_shot_max_bytes) {
  std::vector<Metered> bill(kCommOps);
  if (members == 1) return bill;
  const auto add = [&](CommOp op, uint64_t bytes) {
    Metered& entry = bill[static_cast<uint32_t>(op)];
    ++entry.calls;
    entry.bytes += bytes;
  };
  for (const ScriptStep& step : script) {
    if (step.op == CommOp::kAllReduce) {
      if (step.rows == 0 || step.columns == 0) continue;
      const TestRows mine = MakeRows(step.rows, step.columns, step.wide_percent, step.seed, member);
      const bool one_shot = uint64_t{step.rows} * (1 + 4 * step.columns) <= one_shot_max_bytes;
      uint64_t reduced = 0;
      uint64_t gathered = 0;
      for (uint32_t row = 0; row < step.rows; ++row) {
        reduced += 1;  // the flag
        for (uint32_t column = 0; column < step.columns; ++column) {
          const auto border = [&](uint32_t i) {
            return std::floor(static_cast<double>(step.columns) * i / members + 0.5);
          };
          const bool own = column >= border(member) && column < border(member + 1);
          if (one_shot || !own) reduced += mine.wide[row] != 0 ? 8 : 4;
          if (!one_shot && own) gathered += 4;
        }
      }
      add(one_shot ? CommOp::kAllReduce : CommOp::kReduceScatter, reduced);
      if (!one_shot) add(CommOp::kAllGather, gathered);
    } else if (step.op == CommOp::kReduceScatter) {
      if (step.rows == 0 || step.columns == 0) continue;
      const TestRows mine = MakeRows(step.rows, step.columns, step.wide_percent, step.seed, member);
      const Range own = PartsOf(step)[member];
      uint64_t bytes = 0;
      for (uint32_t row = 0; row < step.rows; ++row) {
        if (row >= own.begin && row < own.end) continue;
        bytes += 1 + uint64_t{step.columns} * (mine.wide[row] != 0 ? 8 : 4);
      }
      add(step.op, bytes);
    } else if (step.op == CommOp::kAllGather) {
      uint64_t total = 0;
      for (const uint64_t size : step.sizes) total += size;
      if (total > 0) add(step.op, step.sizes[member]);
    } else if (step.op == CommOp::kAllToAll) {
      uint64_t bytes = 0;
      for (uint32_t to = 0; to < members; ++to) {
        if (to != member) bytes += step.sizes[member * members + to];
      }
      add(step.op, bytes);
    } else if (step.from == member && step.to != member) {
      add(step.op, step.sizes[0]);
    }
  }
  return bill;
}

std::vector<Metered> MeteredOf(const CommStats& stats) {
  std::vector<Metered> metered;
  for (const OpStats& op : stats.ops) metered.push_back({op.calls.load(), op.bytes.load()});
  return metered;
}

}  // namespace cleave

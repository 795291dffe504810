#include "launch/replica_driver.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "launch/wire.h"

namespace cleave {
namespace {

constexpr int kTickMs = 50;
constexpr auto kOrdersDeadline = std::chrono::seconds(5);

struct SocketPair {
  UniqueFd ours;
  UniqueFd theirs;
};

Result<SocketPair> MakeSocketPair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return ResourceExhausted(
        fmt::format("a socket pair for a worker: {}; see ulimit -n", std::strerror(errno)));
  }
  return SocketPair{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

ReplicaOptions Fill(ReplicaOptions options, const WorkerSpec& first) {
  options.watch.split = first.split;
  options.watch.replica = first.replica;
  options.world.split = first.split;
  return options;
}

}  // namespace

Replica::Driver::Driver(std::vector<WorkerSpec> orders, ReplicaOptions options, LinkEvents events,
                        Board* board, int wake_fd)
    : orders_(std::move(orders)),
      options_(Fill(std::move(options), orders_.front())),
      events_(std::move(events)),
      board_(board),
      wake_fd_(wake_fd),
      watch_(options_.watch) {
  board_->bills.resize(orders_.size());
  board_->expert_tokens.resize(orders_.size());
}

void Replica::Driver::Run() {
  watch_.Start(SteadyClock::now());
  for (;;) {
    for (std::vector<WatchDecision> todo = watch_.Take(); !todo.empty(); todo = watch_.Take()) {
      for (const WatchDecision& decision : todo) Perform(decision);
    }
    Publish();
    if (watch_.state() == WatchState::kOver) return;
    Poll();
    for (uint32_t rank = 0; rank < processes_.size(); ++rank) LookAt(rank);
    for (uint32_t rank = 0; rank < processes_.size(); ++rank) Pump(rank);
    TakeMail();
    watch_.Tick(SteadyClock::now());
  }
}

void Replica::Driver::Perform(const WatchDecision& decision) {
  switch (decision.kind) {
    case WatchDecision::Kind::kSpawn: {
      const Status status = Spawn();
      if (status.ok()) {
        watch_.Spawned({.lines = signs_->lines(), .segment = {memory_->data(), memory_->size()}});
      } else {
        Clear();
        watch_.Failed(ReplicaWatch::kAnyRank, status);
      }
      return;
    }
    case WatchDecision::Kind::kReady:
      return Serve();
    case WatchDecision::Kind::kKill:
      for (const auto& process : processes_) process->child.Kill();
      return;
    case WatchDecision::Kind::kFail:
      spdlog::error("{}", decision.why.ToString());
      return CloseLink(decision.why);
    case WatchDecision::Kind::kAskToEnd:
      for (const auto& process : processes_) {
        (void)SendFrame(process->control.get(), FrameType::kEnd, SteadyClock::now());
      }
      return;
  }
}

// Sizes stay: an ep rank has as many slots, whatever the loads.
void Replica::Driver::PlaceExperts() {
  if (epoch_ == 0 || !options_.expert_loads) return;
  const ExpertTokens loads = options_.expert_loads();
  const uint64_t sum = std::accumulate(loads.begin(), loads.end(), uint64_t{0});
  if (sum == 0) return;
  for (WorkerSpec& orders : orders_) orders.split.expert_loads = loads;
  spdlog::info("replica {}: experts are placed by the load of {} tokens", orders_.front().replica,
               sum);
}

Status Replica::Driver::Spawn() {
  Clear();  // a rest that is over within one turn of the loop was never published
  PlaceExperts();
  ++epoch_;
  WorldOptions world = options_.world;
  world.epoch = epoch_;
  ASSIGN_OR_RETURN(SharedMemory memory, World::Allocate(world, SharedMemoryKind::kProcesses));
  ASSIGN_OR_RETURN(WorldBoard signs, WorldBoard::Open(memory, epoch_));
  signs_.emplace(std::move(signs));
  memory_.emplace(std::move(memory));
  {
    std::lock_guard<std::mutex> lock(board_->mu);
    board_->signs = &*signs_;
  }
  ASSIGN_OR_RETURN(SocketPair link, MakeSocketPair());
  for (uint32_t rank = 0; rank < orders_.size(); ++rank) {
    RETURN_IF_ERROR(SpawnRank(rank, rank == 0 ? link.theirs.get() : -1));
  }
  link_socket_ = std::move(link.ours);
  return OkStatus();
}

Status Replica::Driver::SpawnRank(uint32_t rank, int link_fd) {
  WorkerSpec& orders = orders_[rank];
  orders.epoch = epoch_;
  orders.fds = WorkerFds();
  ASSIGN_OR_RETURN(SocketPair control, MakeSocketPair());
  SpawnOptions spawn{.executable = options_.executable,
                     .arguments = options_.arguments,
                     .fds = {{.from = control.theirs.get(), .at = orders.fds.control},
                             {.from = memory_->fd(), .at = orders.fds.memory}}};
  if (link_fd >= 0) {
    spawn.fds.push_back({.from = link_fd, .at = orders.fds.link});
  } else {
    orders.fds.link = -1;
  }
  // For those who list processes; the rank itself reads its orders.
  spawn.arguments.push_back(fmt::format("replica={}", orders.replica));
  spawn.arguments.push_back(fmt::format("rank={}", rank));
  ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Spawn(spawn));
  processes_.push_back(std::make_unique<RankProcess>(std::move(child), std::move(control.ours)));
  const std::vector<uint8_t> bytes = Pack(orders);
  const Status sent = SendFrame(
      processes_.back()->control.get(), FrameType::kSpec, SteadyClock::now() + kOrdersDeadline,
      [&bytes](ByteWriter* writer) { writer->PutRaw(std::as_bytes(std::span(bytes))); });
  // One that is gone already is about to be seen, with its exit code.
  return sent.code() == StatusCode::kUnavailable ? OkStatus() : sent;
}

void Replica::Driver::Serve() {
  LinkEvents events = events_;
  events.on_trouble = [board = board_, wake = wake_fd_, epoch = epoch_](LinkEvents::Trouble trouble,
                                                                        const Status& why) {
    {
      std::lock_guard<std::mutex> lock(board->mu);
      (trouble == LinkEvents::Trouble::kLinkBroke ? board->link_broke : board->engine_died) = why;
      board->trouble_epoch = epoch;
    }
    ::eventfd_write(wake, 1);
  };
  // Shared: see Replica::link.
  auto link = std::make_shared<EngineLink>(std::move(link_socket_), orders_.front().engine,
                                           std::move(events), options_.link);
  std::lock_guard<std::mutex> lock(board_->mu);
  board_->link = std::move(link);
}

void Replica::Driver::CloseLink(const Status& why) {
  std::shared_ptr<EngineLink> link;
  {
    std::lock_guard<std::mutex> lock(board_->mu);
    link = std::exchange(board_->link, nullptr);
    if (link) board_->why = why;  // at the same time: there is no moment without a reason
  }
  if (!link) return;
  link->Die(why);
  EngineStats last = link->stats();
  last.num_blocks = 0;
  std::lock_guard<std::mutex> lock(board_->mu);
  AddStats(last, &board_->retired);
}

void Replica::Driver::Poll() {
  std::vector<pollfd> entries = {{.fd = wake_fd_, .events = POLLIN, .revents = 0}};
  for (const auto& process : processes_) {
    if (process->open) {
      entries.push_back({.fd = process->control.get(), .events = POLLIN, .revents = 0});
    }
    if (!process->child.exited() && process->child.pidfd() >= 0) {
      entries.push_back({.fd = process->child.pidfd(), .events = POLLIN, .revents = 0});
    }
  }
  (void)::poll(entries.data(), entries.size(), kTickMs);
  if (entries.front().revents != 0) {
    eventfd_t count = 0;
    ::eventfd_read(wake_fd_, &count);
  }
}

// Exits come before what other ranks say about them: the first to be told is the cause.
void Replica::Driver::LookAt(uint32_t rank) {
  ChildProcess& child = processes_[rank]->child;
  for (;;) {
    switch (child.Look()) {
      case ChildProcess::Change::kNone:
        return;
      case ChildProcess::Change::kStopped:
        watch_.RankStopped(rank);
        break;
      case ChildProcess::Change::kContinued:
        watch_.RankContinued(rank);
        break;
      case ChildProcess::Change::kExited:
        Pump(rank);  // it may have said why
        return watch_.RankExited(
            rank, fmt::format("(process {}) {}", child.pid(), Describe(child.exit())));
    }
  }
}

void Replica::Driver::Pump(uint32_t rank) {
  RankProcess& process = *processes_[rank];
  if (!process.open) return;
  const Status filled = process.reader.Fill();
  for (;;) {
    const auto frame = process.reader.Next();
    if (!frame.ok()) {
      process.open = false;
      return watch_.Failed(rank, frame.status());
    }
    if (!frame.value()) break;
    Take(rank, *frame.value());
  }
  if (!filled.ok()) process.open = false;  // its exit is what follows
}

void Replica::Driver::Take(uint32_t rank, const FrameView& frame) {
  if (frame.type == FrameType::kReady) return watch_.RankReady(rank);
  if (frame.type == FrameType::kProgress) {
    const auto share = DecodeProgress(frame.payload);
    if (!share.ok()) return watch_.Failed(rank, share.status());
    return watch_.RankProgressed(rank, *share);
  }
  if (frame.type != FrameType::kError) {
    return watch_.Failed(rank, DataLoss("it sent a frame that is no worker's"));
  }
  Status why;
  const Status decoded = DecodeStatus(frame.payload, &why);
  watch_.Failed(rank, decoded.ok() ? why : decoded);
}

void Replica::Driver::TakeMail() {
  Status link_broke;
  Status engine_died;
  bool stop = false;
  {
    std::lock_guard<std::mutex> lock(board_->mu);
    stop = board_->stop;
    std::swap(link_broke, board_->link_broke);
    std::swap(engine_died, board_->engine_died);
    if (board_->trouble_epoch != epoch_) link_broke = engine_died = OkStatus();
  }
  if (stop) watch_.End();
  if (!engine_died.ok()) watch_.Failed(0, engine_died);
  if (!link_broke.ok()) watch_.LinkClosed(link_broke);
}

void Replica::Driver::Publish() {
  const WatchState state = watch_.state();
  if (state == WatchState::kOver) CloseLink(Unavailable("the server has shut down"));
  if (state == WatchState::kOver || state == WatchState::kResting) Clear();
  std::vector<int> pids;
  for (const auto& process : processes_) pids.push_back(process->child.pid());
  {
    std::lock_guard<std::mutex> lock(board_->mu);
    board_->state = state;
    board_->why = watch_.why();
    board_->trouble = watch_.trouble();
    board_->loaded_share = watch_.loaded_share();
    board_->epoch = epoch_;
    board_->pids = std::move(pids);
  }
  board_->changed.notify_all();
}

// What the ranks wrote is read before their memory goes.
void Replica::Driver::RetireBills() {
  std::lock_guard<std::mutex> lock(board_->mu);
  const WorldBoard* signs = std::exchange(board_->signs, nullptr);
  for (uint32_t rank = 0; signs != nullptr && rank < board_->bills.size(); ++rank) {
    board_->bills[rank].Add(signs->bill(rank));
    AddTokens(signs->expert_tokens(rank), &board_->expert_tokens[rank]);
  }
}

void Replica::Driver::Clear() {
  processes_.clear();
  RetireBills();
  signs_.reset();
  memory_.reset();
  link_socket_.Reset();
}

}  // namespace cleave

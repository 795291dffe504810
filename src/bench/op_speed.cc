#include "bench/op_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "base/checked.h"
#include "base/clock.h"
#include "base/host.h"
#include "bench/bandwidth_probe.h"
#include "bench/compute_probe.h"
#include "kernels/attention.h"
#include "kernels/logits.h"
#include "kernels/math.h"
#include "kernels/matmul.h"
#include "kernels/random_weights.h"
#include "kernels/thread_pool.h"
#include "kernels/vector_ops.h"

namespace cleave {
namespace {

// SmolLM2-135M.
constexpr uint32_t kHidden = 576;
constexpr uint32_t kFfn = 1536;
constexpr uint32_t kHeadDim = 64;
constexpr uint32_t kKvHeads = 3;
constexpr uint32_t kQueriesPerKv = 3;
constexpr uint32_t kHeads = kKvHeads * kQueriesPerKv;
constexpr uint32_t kVocab = 49152;

constexpr double kRepeatSeconds = 0.02;
constexpr uint32_t kMostCalls = 1U << 20U;
constexpr double kMostOfMemory = 0.8;

// One kernel and its inputs; a call takes those of one copy. Run: any threads at once, each with
// results and a scratch of its own.
class Op {
 public:
  virtual ~Op() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual uint64_t input_bytes() const = 0;  // of a copy
  [[nodiscard]] virtual double operations() const { return 0; }
  [[nodiscard]] virtual size_t results() const = 0;
  // Lays down copies [0, copies), all alike.
  virtual void Lay(uint32_t copies) = 0;
  virtual void Run(Isa isa, uint32_t copy, AttentionScratch* scratch, float* out) const = 0;
};

// Rows of n floats: fn(isa, row, out).
class RowOp final : public Op {
 public:
  using Fn = std::function<void(Isa isa, const float* row, float* out)>;
  RowOp(std::string name, uint32_t n, size_t results, Fn fn)
      : name_(std::move(name)), n_(n), results_(results), fn_(std::move(fn)) {}

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] uint64_t input_bytes() const override { return n_ * sizeof(float); }
  [[nodiscard]] size_t results() const override { return results_; }
  void Lay(uint32_t copies) override {
    const std::vector<float> row = MakeActivations(1, n_, /*seed=*/3);
    rows_.resize(size_t{copies} * n_);
    for (uint32_t i = 0; i < copies; ++i) {
      std::copy(row.begin(), row.end(), rows_.begin() + static_cast<ptrdiff_t>(size_t{i} * n_));
    }
  }
  void Run(Isa isa, uint32_t copy, AttentionScratch* /*scratch*/, float* out) const override {
    fn_(isa, rows_.data() + size_t{copy} * n_, out);
  }

 private:
  const std::string name_;
  const uint32_t n_;
  const size_t results_;
  const Fn fn_;
  std::vector<float> rows_;
};

// The last `tokens` positions of a context, over one layer's cache.
class AttentionOp final : public Op {
 public:
  AttentionOp(KvType type, uint32_t tokens, uint32_t context)
      : shape_{.type = type, .head_dim = kHeadDim, .block_tokens = 16},
        tokens_(tokens),
        context_(context),
        table_(context / shape_.block_tokens) {
    std::iota(table_.begin(), table_.end(), 0);
  }

  [[nodiscard]] std::string name() const override {
    return fmt::format("attention, {} token{} of {}{}", tokens_, tokens_ == 1 ? "" : "s", context_,
                       shape_.type == KvType::kInt8 ? ", int8" : "");
  }
  [[nodiscard]] uint64_t input_bytes() const override {
    return kKvHeads * table_.size() * shape_.head_bytes();
  }
  [[nodiscard]] double operations() const override {
    const double seen = tokens_ * (context_ - (tokens_ - 1) / 2.0);
    return 4.0 * seen * kHeads * kHeadDim;
  }
  [[nodiscard]] size_t results() const override { return size_t{tokens_} * kHeads * kHeadDim; }

  void Lay(uint32_t copies) override {
    q_ = MakeActivations(tokens_, kHeads * kHeadDim, /*seed=*/4);
    const std::vector<float> kv = MakeActivations(context_, 2 * kHeadDim, /*seed=*/5);
    const size_t head_bytes = table_.size() * shape_.head_bytes();
    kv_.resize(copies * input_bytes());
    for (uint32_t p = 0; p < context_; ++p) {
      const float* key = kv.data() + size_t{p} * 2 * kHeadDim;
      StoreKv(Isa::kScalar, shape_, key, key + kHeadDim, p % shape_.block_tokens,
              kv_.data() + p / shape_.block_tokens * shape_.head_bytes());
    }
    for (size_t at = head_bytes; at < kv_.size(); at += head_bytes) {
      std::memcpy(kv_.data() + at, kv_.data(), head_bytes);
    }
  }

  void Run(Isa isa, uint32_t copy, AttentionScratch* scratch, float* out) const override {
    for (size_t g = 0; g < kKvHeads; ++g) {
      AttentionJob job;
      job.q = q_.data() + g * kQueriesPerKv * kHeadDim;
      job.q_stride = kHeads * kHeadDim;
      job.out = out + g * kQueriesPerKv * kHeadDim;
      job.out_stride = job.q_stride;
      job.tokens = tokens_;
      job.first_position = context_ - tokens_;
      job.heads = kQueriesPerKv;
      job.scale = 0.125F;
      job.block_table = table_;
      job.kv = kv_.data() + copy * input_bytes() + g * table_.size() * shape_.head_bytes();
      job.block_stride = shape_.head_bytes();
      Attention(isa, shape_, job, scratch);
    }
  }

 private:
  const KvShape shape_;
  const uint32_t tokens_;
  const uint32_t context_;
  std::vector<int32_t> table_;
  std::vector<float> q_;
  std::vector<std::byte> kv_;
};

std::unique_ptr<Op> Quantisation(uint32_t n) {
  const KPlan plan = ColumnPlan(n);
  const uint32_t blocks = n / 32;
  // The buffer is the thread's own: many threads run one op.
  return std::make_unique<RowOp>(
      fmt::format("quantisation of {}", n), n, n / 4 + 2 * size_t{blocks},
      [plan, n, blocks](Isa isa, const float* row, float* out) {
        thread_local ActBuffer acts(1, kFfn / 32);
        PrepareActs(isa, ActKind::kInt8, plan, row, n, 0, 1, &acts);
        std::memcpy(out, acts.q(), n);
        std::memcpy(out + n / 4, acts.scale(), blocks * sizeof(float));
        std::memcpy(out + n / 4 + blocks, acts.sum(), blocks * sizeof(int32_t));
      });
}

std::vector<std::unique_ptr<Op>> RowOps() {
  std::vector<std::unique_ptr<Op>> ops;
  const auto add = [&](const char* name, uint32_t n, size_t results, RowOp::Fn fn) {
    ops.push_back(std::make_unique<RowOp>(name, n, results, std::move(fn)));
  };
  add("norm of 576", kHidden, kHidden,
      [](Isa isa, const float* row, float* out) { RmsNorm(isa, row, row, kHidden, 1e-5F, out); });
  // The frequencies are any: cosine and sine of the row's first head.
  add("rope of 9 heads of 64", kHeads * kHeadDim, kHeads * kHeadDim,
      [](Isa isa, const float* row, float* out) {
        std::memcpy(out, row, sizeof(float) * kHeads * kHeadDim);
        ApplyRope(isa, out, kHeads, kHeadDim, row);
      });
  add("SwiGLU of 1536", 2 * kFfn, kFfn, [](Isa isa, const float* row, float* out) {
    GatedActivation(isa, Activation::kSilu, row, row + kFfn, kFfn, out);
  });
  ops.push_back(Quantisation(kHidden));
  ops.push_back(Quantisation(kFfn));
  add("greatest of 49152 logits", kVocab, 2, [](Isa isa, const float* row, float* out) {
    const MaxLogit best = FindMax(isa, row, kVocab);
    out[0] = best.value;
    out[1] = static_cast<float>(best.id);
  });
  add("masses of 49152 logits", kVocab, 2, [](Isa isa, const float* row, float* out) {
    const int64_t sum = ComputeMasses(isa, row, kVocab, /*max=*/16.0F, kLog2E, nullptr);
    std::memcpy(out, &sum, sizeof sum);
  });
  return ops;
}

std::vector<std::unique_ptr<Op>> AllOps() {
  std::vector<std::unique_ptr<Op>> ops;
  for (KvType type : {KvType::kF16, KvType::kInt8}) {
    ops.push_back(std::make_unique<AttentionOp>(type, 1, 512));
    ops.push_back(std::make_unique<AttentionOp>(type, 1, 2048));
    ops.push_back(std::make_unique<AttentionOp>(type, 512, 512));
  }
  for (auto& op : RowOps()) ops.push_back(std::move(op));
  return ops;
}

class OpBench {
 public:
  OpBench(const OpOptions& options, ThreadPool* pool) : options_(options), pool_(pool) {
    for (uint32_t i = 0; i < pool->size(); ++i) scratch_.emplace_back(kHeadDim);
  }

  Result<OpSpeed> Measure(Op* op);

 private:
  // `calls` of each thread; the seconds they took.
  double RunCalls(const Op& op, uint32_t calls);
  [[nodiscard]] bool IsSame(const Op& op);

  const OpOptions& options_;
  ThreadPool* const pool_;
  std::vector<AttentionScratch> scratch_;
  uint32_t copies_ = 0;  // of a thread
  uint32_t turn_ = 0;
  std::vector<std::vector<float>> results_;  // of a thread
};

double OpBench::RunCalls(const Op& op, uint32_t calls) {
  const TimePoint start = SteadyClock::now();
  pool_->Run([&](uint32_t thread) {
    uint32_t turn = turn_;
    for (uint32_t call = 0; call < calls; ++call) {
      op.Run(options_.isa, thread * copies_ + turn, &scratch_[thread], results_[thread].data());
      turn = turn + 1 == copies_ ? 0 : turn + 1;
    }
  });
  const double seconds = SecondsBetween(start, SteadyClock::now());
  turn_ = static_cast<uint32_t>((uint64_t{turn_} + calls) % copies_);
  return seconds;
}

bool OpBench::IsSame(const Op& op) {
  std::vector<float> truth(op.results());
  pool_->Run([&](uint32_t thread) {
    if (thread == 0) op.Run(Isa::kScalar, 0, scratch_.data(), truth.data());
  });
  return std::equal(truth.begin(), truth.end(), results_[0].begin(), [](float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
  });
}

Result<OpSpeed> OpBench::Measure(Op* op) {
  const uint64_t threads = pool_->size();
  const uint64_t copies =
      std::max<uint64_t>(1, CeilDiv(options_.stream_bytes, op->input_bytes() * threads));
  const uint64_t bytes = copies * threads * op->input_bytes();
  const double there = kMostOfMemory * static_cast<double>(ReadHostMemory().available_bytes);
  if (2.0 * static_cast<double>(bytes) > there) {  // the probe reads a buffer of its own
    return ResourceExhausted(
        fmt::format("{}: {} bytes and as many to probe do not fit the memory; "
                    "give fewer --bytes",
                    op->name(), bytes));
  }
  copies_ = static_cast<uint32_t>(copies);
  turn_ = 0;
  op->Lay(static_cast<uint32_t>(copies * threads));
  results_.assign(threads, std::vector<float>(op->results()));
  OpSpeed speed{.name = op->name(),
                .bytes = op->input_bytes() + op->results() * sizeof(float),
                .operations = op->operations()};
  const double first_s = RunCalls(*op, 1);
  speed.same = IsSame(*op);
  const auto calls = static_cast<uint32_t>(
      std::clamp(kRepeatSeconds / std::max(first_s, 1e-9), 1.0, 1.0 * kMostCalls));
  RunCalls(*op, calls);
  ASSIGN_OR_RETURN(const auto bandwidth, BandwidthProbe::Create(bytes, options_.cpus));
  std::unique_ptr<ComputeProbe> compute;
  if (speed.operations > 0 && HasPeak(options_.isa)) {
    ASSIGN_OR_RETURN(compute, ComputeProbe::Create(options_.isa, PeakKind::kF32, options_.cpus));
  }
  std::vector<double> seconds;
  for (uint32_t repeat = 0; repeat < options_.repeats; ++repeat) {
    seconds.push_back(RunCalls(*op, calls) / calls);
    bandwidth->Measure(1);
    if (compute != nullptr) compute->Measure(1);
  }
  speed.seconds = Median(std::move(seconds));
  const double calls_per_s = static_cast<double>(threads) / speed.seconds;
  speed.bytes_per_s = static_cast<double>(speed.bytes) * calls_per_s;
  speed.probe_bytes_per_s = bandwidth->median_bytes_per_s();
  speed.ops_per_s = speed.operations * calls_per_s;
  if (compute != nullptr) speed.peak_ops_per_s = compute->median_ops_per_s();
  return speed;
}

Result<std::vector<OpSpeed>> MeasureOn(const OpOptions& options,
                                       const std::function<void(const std::string&)>& on_op) {
  ThreadPool pool(static_cast<uint32_t>(options.cpus.size()), options.cpus);
  OpBench bench(options, &pool);
  std::vector<OpSpeed> speeds;
  for (auto& op : AllOps()) {
    on_op(op->name());
    ASSIGN_OR_RETURN(OpSpeed speed, bench.Measure(op.get()));
    speeds.push_back(std::move(speed));
    op.reset();  // its copies
  }
  return speeds;
}

}  // namespace

Result<std::vector<OpSpeed>> MeasureOps(const OpOptions& options,
                                        const std::function<void(const std::string&)>& on_op) {
  if (options.cpus.empty() || options.repeats == 0) {
    return InvalidArgument("kernels need cores and repeats of at least one");
  }
  if (!CpuSupports(options.isa)) {
    return InvalidArgument(fmt::format("this processor does not have {}", IsaName(options.isa)));
  }
  // A pool pins its caller for good: it gets a thread of its own for that.
  Result<std::vector<OpSpeed>> result = Internal("not measured");
  std::thread([&] { result = MeasureOn(options, on_op); }).join();
  return result;
}

}  // namespace cleave

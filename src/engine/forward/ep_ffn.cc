#include "engine/forward/ep_ffn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/row_wire.h"
#include "kernels/act_wire.h"
#include "kernels/vector_ops.h"

namespace cleave {
namespace {

// A row's route: its experts (u16) and gates (fp32), then its shift (i8), each list by rank order.
size_t RouteBytes(uint32_t top_k) {
  return top_k * (sizeof(uint16_t) + sizeof(float)) + sizeof(int8_t);
}
static_assert(ModelConfig::kMaxExperts <= 1U << 16U);

void PutRoute(const uint32_t* chosen, const float* gates, int32_t shift, uint32_t top_k,
              std::byte* out) {
  for (uint32_t i = 0; i < top_k; ++i) {
    const auto expert = static_cast<uint16_t>(chosen[i]);
    std::memcpy(out + i * sizeof expert, &expert, sizeof expert);
  }
  out += top_k * sizeof(uint16_t);
  std::memcpy(out, gates, top_k * sizeof(float));
  const auto small = static_cast<int8_t>(shift);
  std::memcpy(out + top_k * sizeof(float), &small, sizeof small);
}

void TakeRoute(const std::byte* in, uint32_t top_k, uint32_t* chosen, float* gates,
               int32_t* shift) {
  for (uint32_t i = 0; i < top_k; ++i) {
    uint16_t expert = 0;
    std::memcpy(&expert, in + i * sizeof expert, sizeof expert);
    chosen[i] = expert;
  }
  in += top_k * sizeof(uint16_t);
  std::memcpy(gates, in, top_k * sizeof(float));
  const auto bits = std::to_integer<int32_t>(in[top_k * sizeof(float)]);
  *shift = bits <= INT8_MAX ? bits : bits - (1 << 8);
}

Group* TeamGroup(const RankContext& context) {
  return context.layout->split.teams > 1 ? context.comm.team : context.comm.ep;
}

}  // namespace

EpFfn::EpFfn(const RankContext& context, RowStages* stages, RowSum* sum)
    : context_(context),
      sum_(sum),
      team_(TeamGroup(context)),
      routes_(*context.layout, context.rank, context.config->experts_per_token,
              context.max_batch_tokens),
      router_(context, stages, routes_.max_owned()),
      experts_(context, context.max_step_rows()),
      blocks_(ColumnPlan(context.hidden_size()).blocks.size()),
      route_bytes_(RouteBytes(context.config->experts_per_token)),
      tokens_(context.config->num_experts),
      counts_tokens_(ExpertPlaceOf(context.layout->split, context.mine().coord).column_rank == 0),
      slot_of_(context.config->num_experts, ExpertBlock::kElsewhere),
      zeros_(context.hidden_size()),
      send_sizes_(routes_.members()),
      receive_sizes_(routes_.members()),
      team_sizes_(context.layout->split.ranks_per_team()),
      next_(routes_.members()) {
  const std::vector<uint32_t>& held = context.mine().experts;
  for (uint32_t slot = 0; slot < held.size(); ++slot) slot_of_[held[slot]] = slot;
  const size_t rows = context.max_step_rows();
  const size_t top_k = context.config->experts_per_token;
  chosen_.resize(rows * top_k);
  gates_.resize(rows * top_k);
  shift_.resize(rows);
  route_.resize(rows * route_bytes_);
  my_route_.resize(routes_.max_owned() * route_bytes_);
  y_.resize(size_t{context.max_batch_tokens} * context.hidden_size());
  if (team_ != nullptr) own_y_.resize(size_t{routes_.max_owned()} * context.hidden_size());
  arrived_chosen_.resize(rows * top_k);
  arrived_gates_.resize(rows * top_k);
  arrived_shift_.resize(rows);
  size_t row_bytes = 0;
  for (const LayerWeights& w : context.weights->layers) {
    wire_of_.push_back(w.expert_input ? WireOf(*w.expert_input) : RowWire::kFloat);
    row_bytes = std::max<size_t>(row_bytes, RowWireBytes(wire_of_.back(), context.hidden_size()));
    for (const ExpertWeights& e : w.experts) {
      for (const PackedMatrix* m : {&e.gate, &e.up}) {
        std::optional<ActBuffer>& acts = arrived_[static_cast<size_t>(ActKindOf(m->dtype()))];
        if (!acts) acts.emplace(context.max_step_rows(), static_cast<uint32_t>(blocks_));
      }
    }
  }
  const size_t copies = size_t{routes_.max_owned()} * routes_.max_spread();
  const size_t total_bytes = TotalBytes(1);
  flags_.resize(copies);
  total_at_.resize(rows);
  parts_.resize(copies);
  first_part_.resize(routes_.max_owned() + size_t{1});
  send_.resize(std::max(copies * row_bytes, rows * total_bytes));
  receive_.resize(std::max(rows * row_bytes, copies * total_bytes));
}

uint64_t EpFfn::TotalBytes(uint8_t wide) const {
  return context_.hidden_size() * (wide != 0 ? sizeof(int64_t) : sizeof(int32_t));
}

void EpFfn::Plan(const StepRows& step) {
  routes_.Start(step.teams);
  rows_ = step.teams[context_.mine().coord.team];
}

void EpFfn::Run(uint32_t layer, uint32_t rows, float* x, uint32_t thread) {
  const LayerWeights& w = context_.weights->layers[layer];
  const Range own = routes_.own();
  const size_t own_at = static_cast<size_t>(own.begin - rows_.begin) * context_.hidden_size();
  const Router::Inputs inputs = w.expert_input ? Router::Inputs::kExperts : Router::Inputs::kRouter;
  const RowStages::Stage& stage = router_.Run(layer, inputs, own.size(), x + own_at, thread);
  SendOut(layer, stage, thread);
  Receive(layer, thread);
  context_.pool->Barrier();
  experts_.Run(layer, arrived_, arrived_shift_.data(), sum_->ColumnsOf(thread), sum_->totals(),
               thread);
  context_.pool->Barrier();
  Return(thread);
  if (!w.ffn_post_norm.empty()) {
    AddNormedRows(context_, w.ffn_post_norm, {0, rows}, y_.data(), x, thread);
    return;
  }
  const ThreadPool::Share share = context_.pool->ShareOf(rows, thread);
  const size_t at = static_cast<size_t>(share.begin) * context_.hidden_size();
  AddInPlace(context_.isa, x + at, &y_[at], (share.end - share.begin) * context_.hidden_size());
  context_.pool->Barrier();
}

void EpFfn::SendOut(uint32_t layer, const RowStages::Stage& stage, uint32_t thread) {
  if (thread == 0) {
    routes_.Clear();
    if (status_.ok()) status_ = ShareRoutes(layer, stage);
    if (!status_.ok()) routes_.Clear();
  }
  context_.pool->Barrier();
  PackRows(layer, stage, thread);
  context_.pool->Barrier();
  if (thread == 0) {
    if (status_.ok()) status_ = Dispatch(layer);
    if (!status_.ok()) routes_.Clear();
    Assign();
  }
  context_.pool->Barrier();
}

Status EpFfn::ShareRoutes(uint32_t layer, const RowStages::Stage& stage) {
  const uint32_t top_k = router_.shape().top_k;
  const uint32_t own = routes_.own().size();
  for (size_t row = 0; row < own; ++row) {
    PutRoute(router_.chosen() + row * top_k, router_.gates() + row * top_k, stage.shift[row], top_k,
             &my_route_[row * route_bytes_]);
  }
  for (uint32_t member = 0; member < routes_.members(); ++member) {
    receive_sizes_[member] = routes_.OwnedBy(member).size() * route_bytes_;
  }
  RETURN_IF_ERROR(context_.comm.ep->AllGather(std::span(my_route_).first(own * route_bytes_),
                                              receive_sizes_, route_.data()));
  for (size_t row = 0; row < routes_.rows(); ++row) {
    uint32_t* chosen = &chosen_[row * top_k];
    TakeRoute(&route_[row * route_bytes_], top_k, chosen, &gates_[row * top_k], &shift_[row]);
    for (uint32_t i = 0; i < top_k; ++i) {
      if (chosen[i] >= tokens_.size()) {
        return DataLoss(
            fmt::format("row {} is routed to expert {} of {}", row, chosen[i], tokens_.size()));
      }
    }
  }
  routes_.Plan(chosen_.data(), layer);
  return OkStatus();
}

void EpFfn::PackRows(uint32_t layer, const RowStages::Stage& stage, uint32_t thread) {
  const RowWire wire = wire_of_[layer];
  const size_t row_bytes = RowWireBytes(wire, context_.hidden_size());
  const uint32_t first_own = routes_.own().begin;
  std::byte* out = send_.data();
  for (uint32_t member = 0; member < routes_.members(); ++member) {
    const std::span<const uint32_t> sent = routes_.SentTo(member);
    const ThreadPool::Share share =
        context_.pool->ShareOf(static_cast<uint32_t>(sent.size()), thread);
    for (uint32_t i = share.begin; i < share.end; ++i) {
      const uint32_t own = sent[i] - first_own;
      std::byte* to = out + i * row_bytes;
      if (wire == RowWire::kFloat) {
        std::memcpy(to, &stage.hidden[static_cast<size_t>(own) * context_.hidden_size()],
                    row_bytes);
      } else {
        const ActKind kind = KindOf(wire);
        StoreActRow(kind, *stage.prepared[static_cast<size_t>(kind)], blocks_, own, to);
      }
    }
    out += sent.size() * row_bytes;
  }
}

Status EpFfn::Dispatch(uint32_t layer) {
  const RowWire wire = wire_of_[layer];
  const size_t row_bytes = RowWireBytes(wire, context_.hidden_size());
  for (uint32_t member = 0; member < routes_.members(); ++member) {
    send_sizes_[member] = routes_.SentTo(member).size() * row_bytes;
    receive_sizes_[member] = routes_.ArrivingFrom(member) * row_bytes;
    if (member == routes_.me()) continue;
    counts_.rows_sent[static_cast<size_t>(wire)] += routes_.SentTo(member).size();
  }
  return context_.comm.ep->AllToAll(send_.data(), send_sizes_, receive_.data(), receive_sizes_);
}

void EpFfn::Assign() {
  const uint32_t top_k = router_.shape().top_k;
  const std::span<const uint32_t> arrivals = routes_.arrivals();
  for (size_t i = 0; i < arrivals.size(); ++i) {
    const size_t row = arrivals[i];
    for (size_t k = 0; k < top_k; ++k) {
      const uint32_t expert = chosen_[row * top_k + k];
      const bool here = routes_.IsHere(expert, static_cast<uint32_t>(row));
      arrived_chosen_[i * top_k + k] = here ? slot_of_[expert] : ExpertBlock::kElsewhere;
    }
    std::copy_n(&gates_[row * top_k], top_k, &arrived_gates_[i * top_k]);
    arrived_shift_[i] = shift_[row];
  }
  experts_.Assign(arrived_chosen_.data(), arrived_gates_.data(),
                  static_cast<uint32_t>(arrivals.size()));
  if (counts_tokens_) experts_.CountTokens(&tokens_);
}

void EpFfn::Receive(uint32_t layer, uint32_t thread) {
  const RowWire wire = wire_of_[layer];
  const auto rows = static_cast<uint32_t>(routes_.arrivals().size());
  const ThreadPool::Share share = context_.pool->ShareOf(rows, thread);
  if (wire != RowWire::kFloat) {
    const ActKind kind = KindOf(wire);
    const size_t row_bytes = RowWireBytes(wire, context_.hidden_size());
    ActBuffer* acts = &*arrived_[static_cast<size_t>(kind)];
    for (uint32_t row = share.begin; row < share.end; ++row) {
      LoadActRow(kind, &receive_[row * row_bytes], blocks_, row, acts);
    }
    return;
  }
  const KPlan& plan = context_.weights->layers[layer].experts.front().gate.plan();
  const auto* floats = reinterpret_cast<const float*>(receive_.data());
  for (uint32_t kind = 0; kind < arrived_.size(); ++kind) {
    if (!arrived_[kind]) continue;
    PrepareActs(context_.isa, static_cast<ActKind>(kind), plan, floats, context_.hidden_size(),
                share.begin, share.end, &*arrived_[kind]);
  }
}

void EpFfn::Return(uint32_t thread) {
  if (thread == 0) {
    if (status_.ok()) status_ = ReturnFlags();
    if (status_.ok()) PlaceTotals();
  }
  context_.pool->Barrier();
  PackTotals(thread);
  context_.pool->Barrier();
  if (thread == 0) {
    if (status_.ok()) status_ = ReturnTotals();
    if (status_.ok()) PlaceParts();
  }
  context_.pool->Barrier();
  SumOwned(thread);
  context_.pool->Barrier();
  if (team_ == nullptr) return;
  if (thread == 0 && status_.ok() && rows_.size() > 0) status_ = GatherRows();
  context_.pool->Barrier();
}

Status EpFfn::ReturnFlags() {
  for (uint32_t member = 0; member < routes_.members(); ++member) {
    send_sizes_[member] = routes_.ArrivingFrom(member);
    receive_sizes_[member] = routes_.SentTo(member).size();
  }
  return context_.comm.ep->AllToAll(reinterpret_cast<const std::byte*>(experts_.wide()),
                                    send_sizes_, reinterpret_cast<std::byte*>(flags_.data()),
                                    receive_sizes_);
}

// Where in send_ and of which sizes.
void EpFfn::PlaceTotals() {
  size_t row = 0;
  size_t flag = 0;
  size_t byte = 0;
  for (uint32_t member = 0; member < routes_.members(); ++member) {
    const size_t first = byte;
    for (uint32_t i = 0; i < routes_.ArrivingFrom(member); ++i, ++row) {
      const uint8_t wide = experts_.wide()[row];
      total_at_[row] = byte;
      byte += TotalBytes(wide);
      if (member == routes_.me()) continue;
      ++counts_.rows_returned;
      counts_.wide_returned += wide;
    }
    send_sizes_[member] = byte - first;
    receive_sizes_[member] = 0;
    for (size_t i = 0; i < routes_.SentTo(member).size(); ++i) {
      receive_sizes_[member] += TotalBytes(flags_[flag++]);
    }
  }
}

void EpFfn::PackTotals(uint32_t thread) {
  if (!status_.ok()) return;
  const uint32_t size = context_.hidden_size();
  const RowCodec& codec = BestRowCodec();
  const ThreadPool::Share share =
      context_.pool->ShareOf(static_cast<uint32_t>(routes_.arrivals().size()), thread);
  for (size_t row = share.begin; row < share.end; ++row) {
    const int64_t* total = sum_->totals() + row * size;
    std::byte* to = &send_[total_at_[row]];
    if (experts_.wide()[row] != 0) {
      std::memcpy(to, total, TotalBytes(1));
    } else {
      codec.narrow(total, size, reinterpret_cast<int32_t*>(to), StoreKind::kOrdinary);
    }
  }
}

Status EpFfn::ReturnTotals() {
  return context_.comm.ep->AllToAll(send_.data(), send_sizes_, receive_.data(), receive_sizes_);
}

// The totals of each own row, wherever they came back from.
void EpFfn::PlaceParts() {
  size_t byte = 0;
  size_t flag = 0;
  for (uint32_t member = 0; member < routes_.members(); ++member) {
    next_[member] = {.row = 0, .flag = flag, .byte = byte};
    flag += routes_.SentTo(member).size();
    byte += receive_sizes_[member];
  }
  const Range own = routes_.own();
  size_t part = 0;
  for (uint32_t row = own.begin; row < own.end; ++row) {
    first_part_[row - own.begin] = part;
    for (uint32_t member = 0; member < routes_.members(); ++member) {
      Cursor& next = next_[member];
      const std::span<const uint32_t> sent = routes_.SentTo(member);
      if (next.row == sent.size() || sent[next.row] != row) continue;
      const uint8_t wide = flags_[next.flag++];
      parts_[part++] = {.data = &receive_[next.byte], .wide = wide != 0};
      next.byte += TotalBytes(wide);
      ++next.row;
    }
  }
  first_part_[own.size()] = part;
}

void EpFfn::SumOwned(uint32_t thread) {
  if (!status_.ok()) return;
  std::vector<float>& sums = team_ == nullptr ? y_ : own_y_;
  const uint32_t size = context_.hidden_size();
  const RowCodec& codec = BestRowCodec();
  const Range own = routes_.own();
  const ThreadPool::Share share = context_.pool->ShareOf(own.size(), thread);
  for (uint32_t i = share.begin; i < share.end; ++i) {
    const auto count = static_cast<uint32_t>(first_part_[i + 1] - first_part_[i]);
    SumRow(codec, zeros_.data(), false, parts_.data() + first_part_[i], count, size,
           shift_[own.begin + i], &sums[static_cast<size_t>(i) * size]);
  }
}

Status EpFfn::GatherRows() {
  const size_t row_bytes = context_.hidden_size() * sizeof(float);
  const auto team_ranks = static_cast<uint32_t>(team_sizes_.size());
  const uint32_t first = routes_.me() / team_ranks * team_ranks;
  for (uint32_t member = 0; member < team_ranks; ++member) {
    team_sizes_[member] = routes_.OwnedBy(first + member).size() * row_bytes;
  }
  const auto mine =
      std::span(own_y_).first(static_cast<size_t>(routes_.own().size()) * context_.hidden_size());
  return team_->AllGather(std::as_bytes(mine), team_sizes_,
                          reinterpret_cast<std::byte*>(y_.data()));
}

}  // namespace cleave

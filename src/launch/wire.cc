#include "launch/wire.h"

#include <chrono>
#include <concepts>
#include <string>
#include <type_traits>
#include <utility>

namespace cleave {
namespace {

// The fields of a struct are written down once, in Fields, and an archive either puts or gets them.
// The structured bindings see to it that a new field is not forgotten: they no longer compile.
template <typename S, typename T>
concept Is = std::same_as<std::remove_const_t<S>, T>;

// Log-probabilities are most of what is moved: as they lie in memory.
static_assert(sizeof(TokenLogprob) == 12 && std::is_trivially_copyable_v<TokenLogprob>);

// Bytes that one takes at least.
template <typename T>
constexpr size_t kMinBytes = 1;
template <typename T>
constexpr size_t kMinBytes<std::vector<T>> = 4;
template <>
constexpr size_t kMinBytes<TokenLogprobs> = 16;
template <>
constexpr size_t kMinBytes<SequenceOutput> = 34;
template <>
constexpr size_t kMinBytes<SequenceSpec> = 113;
template <>
constexpr size_t kMinBytes<std::pair<int32_t, float>> = 8;

// A container in one piece, whatever its allocation.
template <typename C>
concept Contiguous = requires(C c) {
  typename C::value_type;
  c.data();
  c.resize(1);
};
template <typename T>
constexpr bool kRaw = std::is_arithmetic_v<T> || std::same_as<T, TokenLogprob>;

constexpr FinishReason LastOf(FinishReason) { return FinishReason::kError; }

template <typename A, Is<SamplingParams> S>
void Fields(A& archive, S& s) {
  auto& [temperature, top_p, top_k, min_p, repetition, presence, frequency, logit_bias, allowed,
         bad_words, seed, prompt_index, choice_index, max_tokens, min_tokens, ignore_eos, stop_ids,
         logprobs, prompt_logprobs] = s;
  archive(temperature, top_p, top_k, min_p, repetition, presence, frequency, logit_bias, allowed,
          bad_words, seed, prompt_index, choice_index, max_tokens, min_tokens, ignore_eos, stop_ids,
          logprobs, prompt_logprobs);
}

template <typename A, Is<SequenceSpec> S>
void Fields(A& archive, S& s) {
  auto& [id, prompt, output, sampling, priority, cache_salt, arrival, replica] = s;
  archive(id, prompt, output, sampling, priority, cache_salt, arrival, replica);
}

template <typename A, Is<TokenLogprobs> S>
void Fields(A& archive, S& s) {
  auto& [chosen, top] = s;
  archive(chosen, top);
}

template <typename A, Is<SequenceOutput> S>
void Fields(A& archive, S& s) {
  auto& [id, tokens, logprobs, prompt_logprobs, cached_tokens, finish, stop_token_id, error] = s;
  archive(id, tokens, logprobs, prompt_logprobs, cached_tokens, finish, stop_token_id, error);
}

template <typename A, Is<EngineStats> S>
void Fields(A& archive, S& s) {
  auto& [running, waiting, waiting_tokens, used_blocks, num_blocks, steps, preemptions,
         prompt_tokens, generation_tokens, prefix_queries, prefix_hits, forward_s, step_s,
         last_progress] = s;
  archive(running, waiting, waiting_tokens, used_blocks, num_blocks, steps, preemptions,
          prompt_tokens, generation_tokens, prefix_queries, prefix_hits, forward_s, step_s,
          last_progress);
}

template <typename A, Is<EngineObserver::Finished> S>
void Fields(A& archive, S& s) {
  auto& [reason, prompt_tokens, output_tokens, cached_tokens, preemptions, max_tokens, queue_s,
         prefill_s, decode_s, e2e_s, id] = s;
  archive(reason, prompt_tokens, output_tokens, cached_tokens, preemptions, max_tokens, queue_s,
          prefill_s, decode_s, e2e_s, id);
}

template <typename A, Is<StepEvent> S>
void Fields(A& archive, S& s) {
  archive(s.batch_tokens);
}
template <typename A, Is<FirstTokenEvent> S>
void Fields(A& archive, S& s) {
  archive(s.seconds);
}
template <typename A, Is<NextTokenEvent> S>
void Fields(A& archive, S& s) {
  archive(s.seconds);
}
template <typename A, Is<PreemptedEvent> S>
void Fields(A& archive, S& s) {
  archive(s.id, s.computed_tokens);
}

class PutFields {
 public:
  explicit PutFields(ByteWriter* writer) : writer_(writer) {}
  template <typename... T>
  void operator()(const T&... fields) {
    (One(fields), ...);
  }

 private:
  template <typename T>
  void One(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      writer_->Put(value);
    } else if constexpr (kRaw<T>) {
      writer_->PutRaw(std::as_bytes(std::span(&value, 1)));
    } else {
      Fields(*this, value);
    }
  }
  void One(const std::string& text) { writer_->Put(std::string_view(text)); }
  void One(const TimePoint& time) {
    const auto since = std::chrono::nanoseconds(time.time_since_epoch());
    writer_->Put(static_cast<int64_t>(since.count()));
  }
  void One(const Status& status) {
    writer_->Put(status.code());
    writer_->Put(std::string_view(status.message()));
  }
  void One(const std::pair<int32_t, float>& pair) {
    writer_->Put(pair.first);
    writer_->Put(pair.second);
  }
  template <Contiguous C>
  void One(const C& values) {
    writer_->PutCount(values.size());
    if constexpr (kRaw<typename C::value_type>) {
      writer_->PutRaw(std::as_bytes(std::span(values.data(), values.size())));
    } else {
      for (const auto& value : values) One(value);
    }
  }

  ByteWriter* const writer_;
};

class GetFields {
 public:
  explicit GetFields(ByteReader* reader) : reader_(reader) {}
  template <typename... T>
  void operator()(T&... fields) {
    (One(&fields), ...);
  }

 private:
  template <typename T>
  void One(T* value) {
    if constexpr (std::is_arithmetic_v<T>) {
      *value = reader_->Get<T>();
    } else if constexpr (std::is_enum_v<T>) {
      *value = reader_->GetEnum(LastOf(T{}));
    } else if constexpr (kRaw<T>) {
      Raw(value, 1);
    } else {
      Fields(*this, *value);
    }
  }
  void One(std::string* text) { *text = reader_->GetString(); }
  void One(TimePoint* time) {
    *time = TimePoint(std::chrono::nanoseconds(reader_->Get<int64_t>()));
  }
  void One(Status* status) {
    const StatusCode code = reader_->GetEnum(StatusCode::kInternal);
    *status = Status(code, reader_->GetString());
  }
  void One(std::pair<int32_t, float>* pair) {
    pair->first = reader_->Get<int32_t>();
    pair->second = reader_->Get<float>();
  }
  template <Contiguous C>
  void One(C* values) {
    using T = typename C::value_type;
    values->clear();
    values->resize(reader_->GetCount(kRaw<T> ? sizeof(T) : kMinBytes<T>));
    if constexpr (kRaw<T>) {
      Raw(values->data(), values->size());
    } else {
      for (T& value : *values) {
        One(&value);
        if (!reader_->ok()) return;
      }
    }
  }
  template <typename T>
  void Raw(T* values, size_t count) {
    const std::span<const std::byte> from = reader_->Take(count * sizeof(T));
    if (!from.empty()) std::memcpy(values, from.data(), from.size());
  }

  ByteReader* const reader_;
};

template <size_t I = 0>
EngineEvent GetEvent(ByteReader* reader, size_t kind) {
  if constexpr (I == std::variant_size_v<EngineEvent>) {
    reader->Fail();
    return {};
  } else {
    if (kind != I) return GetEvent<I + 1>(reader, kind);
    std::variant_alternative_t<I, EngineEvent> event;
    GetFields fields(reader);
    Fields(fields, event);
    return event;
  }
}

std::vector<EngineEvent> GetEvents(ByteReader* reader) {
  std::vector<EngineEvent> events(reader->GetCount(5));
  for (EngineEvent& event : events) {
    event = GetEvent(reader, reader->Get<uint8_t>());
    if (!reader->ok()) break;
  }
  return events;
}

}  // namespace

void Replay(const EngineEvent& event, EngineObserver* observer) {
  struct Call {
    EngineObserver* to;
    void operator()(const StepEvent& e) const { to->OnStep(e.batch_tokens); }
    void operator()(const FirstTokenEvent& e) const { to->OnFirstToken(e.seconds); }
    void operator()(const NextTokenEvent& e) const { to->OnNextToken(e.seconds); }
    void operator()(const PreemptedEvent& e) const { to->OnPreempted(e.id, e.computed_tokens); }
    void operator()(const EngineObserver::Finished& e) const { to->OnFinished(e); }
  };
  std::visit(Call{observer}, event);
}

void Encode(ByteWriter* writer, uint64_t number, const std::vector<SequenceSpec>& sequences) {
  PutFields{writer}(number, sequences);
}

void Encode(ByteWriter* writer, const ReplyMessage& reply) {
  PutFields{writer}(reply.number, reply.status, reply.stats);
}

void Encode(ByteWriter* writer, const Status& health, const EngineStats& stats,
            std::span<const EngineEvent> events, std::span<const SequenceOutput> outputs) {
  PutFields put(writer);
  put(health, stats);
  writer->PutCount(events.size());
  for (const EngineEvent& event : events) {
    writer->Put(static_cast<uint8_t>(event.index()));
    std::visit([&](const auto& e) { Fields(put, e); }, event);
  }
  writer->PutCount(outputs.size());
  for (const SequenceOutput& output : outputs) Fields(put, output);
}

void Encode(ByteWriter* writer, const Status& status) { PutFields{writer}(status); }

void Encode(ByteWriter* writer, const std::vector<SequenceId>& ids) { PutFields{writer}(ids); }

Result<SubmitMessage> DecodeSubmit(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  SubmitMessage message;
  GetFields{&reader}(message.number, message.sequences);
  RETURN_IF_ERROR(reader.Finish("a request between processes"));
  return message;
}

Result<ReplyMessage> DecodeReply(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  ReplyMessage message;
  GetFields{&reader}(message.number, message.status, message.stats);
  RETURN_IF_ERROR(reader.Finish("a reply between processes"));
  return message;
}

Result<StepMessage> DecodeStep(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  StepMessage message;
  GetFields get(&reader);
  get(message.health, message.stats);
  message.events = GetEvents(&reader);
  get(message.outputs);
  RETURN_IF_ERROR(reader.Finish("a step's results between processes"));
  return message;
}

Result<std::vector<SequenceId>> DecodeIds(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  std::vector<SequenceId> ids;
  GetFields{&reader}(ids);
  RETURN_IF_ERROR(reader.Finish("ids between processes"));
  return ids;
}

Result<double> DecodeProgress(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  const auto share = reader.Get<double>();
  RETURN_IF_ERROR(reader.Finish("a rank's progress"));
  // Not a number fails here too.
  if (!(share >= 0 && share <= 1)) return DataLoss("a rank's progress is not between 0 and 1");
  return share;
}

Status DecodeStatus(std::span<const std::byte> payload, Status* status) {
  ByteReader reader(payload);
  GetFields{&reader}(*status);
  return reader.Finish("a status between processes");
}

}  // namespace cleave

#include "http/front.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <iterator>
#include <utility>

#include "base/rng.h"
#include "http/door.h"
#include "http/openai/error.h"

namespace cleave {
namespace {

using openai::ApiError;
using openai::FromHttpStatus;

constexpr std::chrono::milliseconds kStopGrace{1000};

std::string ServerErrorBody(int status, std::string_view message) {
  return openai::ErrorBody(FromHttpStatus(status, message));
}

// Media types are compared without case (RFC 9110, 8.3.1).
bool IsJson(const http::Request& request) {
  const std::string* type = request.Find("content-type");
  if (type == nullptr) return true;
  std::string media = type->substr(0, type->find(';'));
  while (!media.empty() && (media.back() == ' ' || media.back() == '\t')) media.pop_back();
  for (char& c : media) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return media == "application/json" || (media.size() > 5 && media.ends_with("+json"));
}

bool MakesTokens(RouteId route) {
  return route == RouteId::kChat || route == RouteId::kCompletions;
}

}  // namespace

Front::Front(ServerOptions options, ServerMetrics* metrics)
    : options_(std::move(options)), metrics_(metrics), created_s_(std::time(nullptr)) {
  generations_ = std::make_unique<Generations>(metrics_, options_.limits.stream_buffer_bytes,
                                               [this] { UpdateActive(); });
  workers_ =
      std::make_unique<WorkerPool>(options_.tokenizer_threads, options_.max_preparing_requests);
}

Status Front::Listen() {
  http::Server::Options server;
  server.host = options_.host;
  server.port = options_.port;
  server.limits = options_.limits;
  server.error_body = ServerErrorBody;
  ASSIGN_OR_RETURN(
      server_,
      http::Server::Listen(std::move(server), [this](http::Request&& request,
                                                     std::shared_ptr<http::ResponseWriter> writer) {
        OnRequest(std::move(request), std::move(writer));
      }));
  server_->Start();  // requests need server_
  return OkStatus();
}

void Front::SetModel(const ServedModel& model) {
  auto text = std::make_shared<ServedText>();
  text->text = {model.tokenizer, model.chat_template};
  text->prompt_tokens_details = options_.prompt_tokens_details;
  openai::RequestRules& rules = text->rules;
  rules.model_names = options_.served_model_names;
  rules.vocab_size = model.tokenizer->vocab_size();
  if (model.vocab_size > 0) rules.vocab_size = std::min(rules.vocab_size, model.vocab_size);
  const EngineConfig config = model.engine->config();
  rules.max_model_len = config.max_model_len;
  rules.max_logprobs = options_.max_logprobs;
  rules.priorities = config.policy == SchedulingPolicy::kPriority;
  if (options_.generation_config == GenerationConfigSource::kModel) rules.defaults = model.defaults;
  rules.trust_request_chat_template = options_.trust_request_chat_template;
  rules.force_include_usage = options_.force_include_usage;
  rules.return_tokens_as_token_ids = options_.return_tokens_as_token_ids;
  server_->Post([this, model, text = std::move(text)] {
    model_ = model;
    text_ = text;
  });
}

void Front::SetLoading(std::string progress) {
  server_->Post([this, progress = std::move(progress)] { loading_ = progress; });
}

void Front::OnOutputs(std::vector<SequenceOutput>&& outputs) {
  // Shared: std::function copies what it holds. The engine keeps its vector, for the next step.
  auto held = std::make_shared<std::vector<SequenceOutput>>(
      std::make_move_iterator(outputs.begin()), std::make_move_iterator(outputs.end()));
  server_->Post([this, held] { generations_->OnOutputs(std::move(*held)); });
}

void Front::StartDrain() {
  if (draining_.exchange(true)) return;
  server_->Post([this] {
    if (model_.engine != nullptr) model_.engine->StartDrain();
  });
  server_->StartDrain();
}

size_t Front::ActiveRequests() const { return active_.load(); }

bool Front::WaitIdle(TimePoint deadline) {
  // What was posted before this call is done first: a request just received counts.
  auto settled = std::make_shared<std::atomic<bool>>(false);  // shared with the posted work
  server_->Post([this, settled] {
    std::lock_guard<std::mutex> lock(mu_);
    settled->store(true);
    idle_.notify_all();
  });
  std::unique_lock<std::mutex> lock(mu_);
  return idle_.wait_until(lock, deadline, [&] { return settled->load() && active_.load() == 0; });
}

void Front::FailAll(const Status& why) {
  server_->Post([this, why] {
    failing_ = why;
    generations_->FailAll(why);
  });
}

void Front::Stop() {
  workers_->Stop();
  if (server_ != nullptr) server_->Stop(kStopGrace);
}

void Front::UpdateActive() {
  std::lock_guard<std::mutex> lock(mu_);
  active_.store(preparing_ + generations_->size());
  if (active_.load() == 0) idle_.notify_all();
}

std::unique_ptr<Reply> Front::MakeReply(const http::Request& request, const Route& route,
                                        std::shared_ptr<http::ResponseWriter> writer) const {
  ReplyContext context;
  context.writer = std::move(writer);
  context.metrics = metrics_;
  context.handler = route.pattern;
  context.method = request.method.substr(0, 16);  // the client's word, of any length
  context.request_id = ClientRequestId(request);
  if (context.request_id.empty()) context.request_id = NewRequestId();
  context.headers = OriginHeaders(request, options_.allowed_origins);
  context.arrival = request.arrival;
  context.request_bytes = request.body.size();
  context.counted = !IsProbe(route);
  context.logged = options_.access_log && !IsProbe(route);
  return std::make_unique<Reply>(std::move(context));
}

void Front::OnRequest(http::Request&& request, std::shared_ptr<http::ResponseWriter> writer) {
  const Route& route = FindRoute(request.path);
  std::unique_ptr<Reply> reply = MakeReply(request, route, std::move(writer));
  if (auto error = CheckDoor(request, route)) {
    http::Response response = ErrorResponse(*error);
    if (error->status == 405) response.headers.push_back({"Allow", std::string(route.allow)});
    return reply->Send(std::move(response));
  }
  if (request.method == "OPTIONS") return reply->Send(Preflight(route));
  if (route.allow.substr(0, 4) == "POST") {
    return StartJob(std::move(request), route, std::move(reply));
  }
  Answer(request, route, reply.get());
}

std::optional<ApiError> Front::CheckDoor(const http::Request& request, const Route& route) const {
  const bool preflight = request.method == "OPTIONS" && route.id != RouteId::kNone;
  if (!options_.api_keys.empty() && IsGuarded(request.path) && !preflight &&
      !HasKey(request, options_.api_keys)) {
    return FromHttpStatus(401, "invalid or missing API key; send it as Authorization: Bearer KEY");
  }
  if (route.id == RouteId::kNone) return FromHttpStatus(404, "no such path");
  if (!Allows(route, request.method)) {
    return FromHttpStatus(405, fmt::format("this path allows {}", route.allow));
  }
  const std::string* rank = request.Find("x-data-parallel-rank");
  if (rank == nullptr || ReplicaOf(request) >= 0) return std::nullopt;
  return openai::BadRequest(
      options_.data_parallel_size == 1
          ? std::string("X-data-parallel-rank must be 0: there is one replica")
          : fmt::format("X-data-parallel-rank must be 0 to {}: there are {} data-parallel ranks",
                        options_.data_parallel_size - 1, options_.data_parallel_size),
      "X-data-parallel-rank");
}

int32_t Front::ReplicaOf(const http::Request& request) const {
  const std::string* rank = request.Find("x-data-parallel-rank");
  if (rank == nullptr) return -1;
  const char* end = rank->data() + rank->size();
  int32_t replica = -1;
  const auto [stop, error] = std::from_chars(rank->data(), end, replica);
  const bool exists = error == std::errc() && stop == end && replica >= 0 &&
                      static_cast<uint32_t>(replica) < options_.data_parallel_size;
  return exists ? replica : -1;
}

http::Response Front::Preflight(const Route& route) {
  http::Response response;
  response.status = 204;
  response.content_type.clear();
  response.headers = {{"Allow", std::string(route.allow)},
                      {"Access-Control-Allow-Methods", std::string(route.allow)},
                      {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id"},
                      {"Access-Control-Max-Age", "600"}};
  return response;
}

std::optional<ApiError> Front::CheckOpen() const {
  Status status;
  if (text_ == nullptr) {
    status = Unavailable(fmt::format("not ready: {}; try again", loading_));
  } else if (draining_.load()) {
    status = Unavailable("the server is draining; try another one");
  }
  if (status.ok()) return std::nullopt;
  return openai::FromStatus(status);
}

void Front::StartJob(http::Request&& request, const Route& route, std::unique_ptr<Reply> reply) {
  if (auto error = CheckOpen()) {
    if (draining_.load() && MakesTokens(route.id)) metrics_->CountRejection("draining");
    return reply->SendError(*error);
  }
  if (!IsJson(request)) {
    return reply->SendError(openai::BadRequest("Content-Type must be application/json"));
  }
  auto job = std::make_shared<Job>();
  job->route = route.id;
  job->client_id = ClientRequestId(request);
  job->replica = ReplicaOf(request);
  job->body = std::move(request.body);
  job->text = text_;
  job->reply = std::move(reply);
  job->reply->OnGone([weak = std::weak_ptr<Job>(job)] {
    if (auto left = weak.lock()) left->gone.store(true);
  });
  const bool queued = workers_->Push([this, job] {
    if (!job->gone.load()) job->prepared = Prepare(job->route, job->body, *job->text);
    server_->Post([this, job] { FinishJob(job); });
  });
  if (!queued) {
    return job->reply->SendError(openai::FromStatus(ResourceExhausted(fmt::format(
        "more than {} requests are being read; try again", options_.max_preparing_requests))));
  }
  ++preparing_;
  UpdateActive();
}

void Front::FinishJob(const std::shared_ptr<Job>& job) {
  --preparing_;
  std::unique_ptr<Reply> reply = std::move(job->reply);
  Prepared prepared = std::move(job->prepared);
  reply->OnGone(nullptr);
  if (job->gone.load()) {
    // The client left: there is nobody to answer.
  } else if (!failing_.ok()) {
    reply->SendError(openai::FromStatus(failing_));
  } else if (prepared.error) {
    reply->SendError(*prepared.error);
  } else if (prepared.sequences.empty()) {
    reply->SendJson(std::move(prepared.body));
  } else {
    openai::AnswerInput& answer = prepared.answer;
    std::string id = job->client_id.empty() ? answer.id : job->client_id;
    if (id.empty()) id = reply->request_id();
    answer.id = (job->route == RouteId::kChat ? "chatcmpl-" : "cmpl-") + id;
    answer.created_s = std::time(nullptr);
    for (SequenceSpec& spec : prepared.sequences) spec.replica = job->replica;
    generations_->Start(std::move(reply), std::move(prepared), SeedOfNext(), model_.engine);
  }
  UpdateActive();
}

Result<std::unique_ptr<Api>> Api::Start(ServerOptions options, ServerMetrics* metrics) {
  if (options.served_model_names.empty()) {
    return InvalidArgument("served_model_names must hold at least one name");
  }
  auto front = std::make_unique<Front>(std::move(options), metrics);
  RETURN_IF_ERROR(front->Listen());
  return std::unique_ptr<Api>(std::move(front));
}

uint64_t Front::SeedOfNext() {
  if (!options_.seed) return NewSeed();
  return RandomBits({.seed = *options_.seed, .position = generations_started_++});
}

}  // namespace cleave

#pragma once
// Front: the API's state and its request routing. Private to the folder.
//
// Threads: members are the server thread's, but for what is marked shared.

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "http/api.h"
#include "http/generations.h"
#include "http/prepare.h"
#include "http/reply.h"
#include "http/routes.h"
#include "http/server.h"
#include "http/worker_pool.h"

namespace cleave {

class Front final : public Api {
 public:
  Front(ServerOptions options, ServerMetrics* metrics);
  ~Front() override { Front::Stop(); }
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  Status Listen();
  [[nodiscard]] uint16_t port() const override { return server_->port(); }
  void SetModel(const ServedModel& model) override;
  void SetLoading(std::string progress) override;
  void OnOutputs(std::vector<SequenceOutput>&& outputs) override;
  void StartDrain() override;
  [[nodiscard]] size_t ActiveRequests() const override;
  bool WaitIdle(TimePoint deadline) override;
  void FailAll(const Status& why) override;
  void Stop() override;

 private:
  // A request that a worker prepares. Shared by the worker's job and the client's leaving.
  struct Job {
    RouteId route = RouteId::kNone;
    std::string body;
    std::string client_id;
    int32_t replica = -1;                    // that the request names
    std::shared_ptr<const ServedText> text;  // shared: read by workers
    std::unique_ptr<Reply> reply;            // the server thread's
    std::atomic<bool> gone{false};           // shared
    Prepared prepared;                       // the worker's, then the server thread's
  };

  void OnRequest(http::Request&& request, std::shared_ptr<http::ResponseWriter> writer);
  std::unique_ptr<Reply> MakeReply(const http::Request& request, const Route& route,
                                   std::shared_ptr<http::ResponseWriter> writer) const;
  [[nodiscard]] std::optional<openai::ApiError> CheckDoor(const http::Request& request,
                                                          const Route& route) const;
  // The one X-data-parallel-rank names; -1 without, or when there is none such.
  [[nodiscard]] int32_t ReplicaOf(const http::Request& request) const;
  [[nodiscard]] static http::Response Preflight(const Route& route);
  void Answer(const http::Request& request, const Route& route, Reply* reply);
  // The seed of the next request that brings none.
  uint64_t SeedOfNext();
  void StartJob(http::Request&& request, const Route& route, std::unique_ptr<Reply> reply);
  [[nodiscard]] std::optional<openai::ApiError> CheckOpen() const;
  void FinishJob(const std::shared_ptr<Job>& job);
  void UpdateActive();

  // "" when all is well, else why not.
  [[nodiscard]] std::string EngineTrouble() const;
  void AnswerHealth(Reply* reply) const;
  void AnswerReady(Reply* reply) const;
  void AnswerModels(const http::Request& request, const Route& route, Reply* reply) const;
  void AnswerMetrics(Reply* reply) const;
  void AnswerBill(Reply* reply) const;

  // Set by the constructor.
  const ServerOptions options_;
  ServerMetrics* const metrics_;
  const int64_t created_s_;

  ServedModel model_;
  std::shared_ptr<const ServedText> text_;  // shared with jobs; null: no model yet
  std::string loading_ = "loading the model";
  Status failing_;  // set by FailAll: jobs that come back get it
  size_t preparing_ = 0;
  std::unique_ptr<Generations> generations_;
  uint64_t generations_started_ = 0;

  // Shared.
  std::atomic<bool> draining_{false};
  std::mutex mu_;
  std::condition_variable idle_;
  std::atomic<size_t> active_{0};  // written under mu_

  std::unique_ptr<WorkerPool> workers_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace cleave

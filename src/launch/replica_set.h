#pragma once
// ReplicaSet: dp replicas behind the interface of one engine. They share nothing: one that dies
// takes its own streams with it (each ends with an explicit error) and is started again, while the
// others go on.
//
//   ReplicaSet set(orders, options, sink, {observer});
//   RETURN_IF_ERROR(set.Start(progress, deadline));     // all are ready, or why one is not
//
// A request goes to the replica that SequenceSpec::replica names, else where ReplicaChoice says;
// when that one refuses for want of room or because it just died, to the next best.
// Owner: cli. Threads: all methods any. The sink is called on the replicas' reader threads, one
// call at a time for each replica; observers one call at a time in all.
// Submit fails as Engine::Submit, with kInvalidArgument for a replica there is not, kUnavailable
// when none lives.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "engine/engine_client.h"
#include "launch/replica.h"
#include "launch/replica_choice.h"

namespace cleave {

class ReplicaSet final : public EngineClient {
 public:
  // `orders[replica][rank]`. `observers`: none, one for all, or one a replica; they outlive the
  // set. Replicas are started again when there are several (options.watch.on_death is filled in).
  ReplicaSet(std::vector<std::vector<WorkerSpec>> orders, const ReplicaOptions& options,
             Engine::Sink sink, const std::vector<EngineObserver*>& observers);
  ~ReplicaSet() override;  // as Stop
  ReplicaSet(const ReplicaSet&) = delete;
  ReplicaSet& operator=(const ReplicaSet&) = delete;

  // Starts all and waits for them; `progress` gets the share of all weights that is loaded.
  Status Start(const std::function<void(double)>& progress, TimePoint deadline);
  // Ends all processes; what is open ends with an error.
  void Stop();

  Status Submit(std::vector<SequenceSpec> sequences) override;
  void Abort(SequenceId id) override;
  void StartDrain() override;
  void FailAll(const Status& why);
  [[nodiscard]] EngineStats stats() const override;                       // of all
  [[nodiscard]] EngineConfig config() const override { return config_; }  // of one
  [[nodiscard]] Bill bill() const override;  // of all, restarts added up
  // Ok while any replica serves, else why the first does not.
  [[nodiscard]] Status health() const override;
  // Why it died, when no replica lives and none will be started again.
  [[nodiscard]] Status death() const;

  [[nodiscard]] size_t size() const { return replicas_.size(); }
  [[nodiscard]] const Replica& replica(size_t index) const { return *replicas_[index]; }

 private:
  class LockedObserver;
  struct Target {
    uint32_t replica = 0;
    std::shared_ptr<EngineLink> link;  // see Replica::link
  };

  LinkEvents EventsOf(EngineObserver* observer);
  void TakeOutputs(std::vector<SequenceOutput>&& outputs);
  // The best of the replicas that `tried` does not name.
  std::optional<Target> Choose(const SequenceSpec& first, const std::vector<bool>& tried);
  Status SubmitTo(const Target& target, std::vector<SequenceSpec> sequences);
  [[nodiscard]] std::shared_ptr<EngineLink> LinkOf(SequenceId id) const;

  // Set by the constructor.
  const EngineConfig config_;
  const Split split_;
  const Engine::Sink sink_;
  std::mutex observers_mu_;
  std::vector<std::unique_ptr<LockedObserver>> observers_;

  mutable std::mutex mu_;
  // Guarded by mu_.
  ReplicaChoice choice_;
  std::unordered_map<SequenceId, uint32_t> where_;  // the replica of each open sequence
  std::vector<uint64_t> epochs_;                    // whose caches choice_ knows about
  bool draining_ = false;

  std::vector<std::unique_ptr<Replica>> replicas_;  // last: their threads call back
};

}  // namespace cleave

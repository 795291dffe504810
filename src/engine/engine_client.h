#pragma once
// EngineClient: what the API needs of an engine, so that its tests, replicas in other processes and
// the router can put another one in its place. Calls as in engine/engine.h; any thread.

#include <memory>
#include <vector>

#include "base/status.h"
#include "comm/bill.h"
#include "engine/engine.h"

namespace cleave {

class EngineClient {
 public:
  virtual ~EngineClient() = default;
  virtual Status Submit(std::vector<SequenceSpec> sequences) = 0;
  virtual void Abort(SequenceId id) = 0;
  virtual void StartDrain() = 0;
  [[nodiscard]] virtual EngineStats stats() const = 0;
  [[nodiscard]] virtual EngineConfig config() const = 0;
  [[nodiscard]] virtual Status health() const = 0;
  // What its ranks moved and tokens of experts since the start.
  [[nodiscard]] virtual Bill bill() const { return {}; }
};

// `engine` outlives the client.
std::unique_ptr<EngineClient> MakeEngineClient(Engine* engine);

}  // namespace cleave

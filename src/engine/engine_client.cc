#include "engine/engine_client.h"

#include <utility>

namespace cleave {
namespace {

class LocalEngine final : public EngineClient {
 public:
  explicit LocalEngine(Engine* engine) : engine_(engine) {}
  Status Submit(std::vector<SequenceSpec> sequences) override {
    return engine_->Submit(std::move(sequences));
  }
  void Abort(SequenceId id) override { engine_->Abort(id); }
  void StartDrain() override { engine_->StartDrain(); }
  [[nodiscard]] EngineStats stats() const override { return engine_->stats(); }
  [[nodiscard]] EngineConfig config() const override { return engine_->config(); }
  [[nodiscard]] Status health() const override { return engine_->health(); }
  [[nodiscard]] Bill bill() const override {
    Bill bill;
    ExpertTokens tokens = engine_->expert_tokens();
    if (!tokens.empty()) bill.expert_tokens.push_back(std::move(tokens));
    return bill;
  }

 private:
  Engine* const engine_;
};

}  // namespace

std::unique_ptr<EngineClient> MakeEngineClient(Engine* engine) {
  return std::make_unique<LocalEngine>(engine);
}

}  // namespace cleave

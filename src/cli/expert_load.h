#pragma once
// ExpertLoadFile: the file of --expert-load: tokens that went to each expert of a model, from one
// run to the next.
//
//   {"model": "mixtral", "expert_tokens": [120, 98, …]}
//
// It is read when a server starts and written, old and new counts added up, every few minutes and
// at the end: whole or not at all. Remove it to begin anew.
//
// Owner: the service; main thread, writes on a thread of its own. Fails with kInvalidArgument
// naming the file and what is wrong with it; a write that fails later is a warning.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/status.h"
#include "comm/expert_counts.h"
#include "split/split.h"

namespace cleave {

class ExpertLoadFile {
 public:
  static constexpr std::chrono::milliseconds kEvery = std::chrono::minutes(3);

  // kKeep: what can not be written is found now, and a file there is none of is created.
  enum class Use { kRead, kKeep };
  // Of a model with so many experts.
  static Result<std::unique_ptr<ExpertLoadFile>> Open(std::string path, std::string model,
                                                      uint32_t experts, Use use);
  ~ExpertLoadFile();  // writes what was counted last
  ExpertLoadFile(const ExpertLoadFile&) = delete;
  ExpertLoadFile& operator=(const ExpertLoadFile&) = delete;

  // [E] as the file was.
  [[nodiscard]] const ExpertTokens& tokens() const { return before_; }
  // `counted`: tokens since the start; called on the file's thread until it is destroyed. Once.
  void Follow(std::function<ExpertTokens()> counted, std::chrono::milliseconds every = kEvery);

 private:
  ExpertLoadFile(std::string path, std::string model)
      : path_(std::move(path)), model_(std::move(model)) {}
  Status Read(uint32_t experts);
  Status Write(const ExpertTokens& tokens) const;
  void WriteCounted();

  const std::string path_;
  const std::string model_;
  ExpertTokens before_;
  std::function<ExpertTokens()> counted_;
  std::mutex mu_;
  std::condition_variable wake_;
  bool ending_ = false;  // guarded by mu_
  std::thread thread_;   // last
};

// The file `path` of --expert-load, of the model at `model_path`, and its counts as the split's
// loads; null where the flag is not given.
Result<std::unique_ptr<ExpertLoadFile>> OpenExpertLoad(const std::string& path,
                                                       const std::string& model_path,
                                                       ExpertLoadFile::Use use, Split* split);

}  // namespace cleave

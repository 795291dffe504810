#include "cli/expert_load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/unique_fd.h"
#include "model/checkpoint.h"

namespace cleave {
namespace {

using Json = nlohmann::ordered_json;

// Room for kMaxExperts numbers of 20 digits and a long name.
constexpr std::streamoff kMaxFileBytes = 1 << 20;

Status Bad(const std::string& path, const std::string& what) {
  return InvalidArgument(fmt::format(
      "--expert-load {}: {}; name another file, or remove it to start one", path, what));
}

Status CanNot(const char* verb, const std::string& path, const std::string& why) {
  return InvalidArgument(fmt::format("--expert-load: can not {} {}: {}", verb, path, why));
}

Status WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Unavailable(std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  return ::fsync(fd) == 0 ? OkStatus() : Unavailable(std::strerror(errno));
}

}  // namespace

Status ExpertLoadFile::Read(uint32_t experts) {
  before_.assign(experts, 0);
  std::error_code error;
  const auto kind = std::filesystem::status(path_, error).type();
  if (kind == std::filesystem::file_type::not_found) return OkStatus();
  if (error) return CanNot("read", path_, error.message());
  // A pipe would be waited for, and what is no file can not be replaced by one.
  if (kind != std::filesystem::file_type::regular) return Bad(path_, "it is no regular file");
  std::ifstream file(path_, std::ios::binary);
  if (!file) return CanNot("read", path_, std::strerror(errno));
  std::string text(kMaxFileBytes, '\0');
  file.read(text.data(), kMaxFileBytes);
  if (file.gcount() == kMaxFileBytes) return Bad(path_, "it is larger than any such file");
  text.resize(static_cast<size_t>(file.gcount()));
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("model") || !json["model"].is_string() ||
      !json.contains("expert_tokens") || !json["expert_tokens"].is_array()) {
    return Bad(path_, "it is not {\"model\": \"…\", \"expert_tokens\": […]}");
  }
  const auto its_model = json["model"].get<std::string>();
  if (its_model != model_) {
    return Bad(path_, fmt::format("it is of model '{}', this one is '{}'", its_model, model_));
  }
  ExpertTokens tokens;
  for (const Json& number : json["expert_tokens"]) {
    if (!number.is_number_unsigned()) return Bad(path_, "expert_tokens holds what is no count");
    tokens.push_back(number.get<uint64_t>());
  }
  if (tokens.size() == experts) {
    before_ = std::move(tokens);
    return OkStatus();
  }
  return Bad(path_, fmt::format("it counts {} experts, the model has {}", tokens.size(), experts));
}

Status ExpertLoadFile::Write(const ExpertTokens& tokens) const {
  const Json json = {{"model", model_}, {"expert_tokens", tokens}};
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::string fresh = fmt::format("{}.{}.new", path_, ::getpid());
  const UniqueFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (fd.get() < 0) return CanNot("write", fresh, std::strerror(errno));
  const Status written = WriteAll(fd.get(), text);
  if (written.ok() && std::rename(fresh.c_str(), path_.c_str()) == 0) return OkStatus();
  Status why =
      written.ok() ? CanNot("write", path_, std::strerror(errno)) : written.Annotate(fresh);
  ::unlink(fresh.c_str());
  return why;
}

Result<std::unique_ptr<ExpertLoadFile>> ExpertLoadFile::Open(std::string path, std::string model,
                                                             uint32_t experts, Use use) {
  std::unique_ptr<ExpertLoadFile> file(new ExpertLoadFile(std::move(path), std::move(model)));
  RETURN_IF_ERROR(file->Read(experts));
  if (use == Use::kKeep) RETURN_IF_ERROR(file->Write(file->before_));
  return file;
}

ExpertLoadFile::~ExpertLoadFile() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(mu_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void ExpertLoadFile::Follow(std::function<ExpertTokens()> counted,
                            std::chrono::milliseconds every) {
  counted_ = std::move(counted);
  thread_ = std::thread([this, every] {
    std::unique_lock<std::mutex> lock(mu_);
    for (bool last = false; !last;) {
      last = wake_.wait_for(lock, every, [this] { return ending_; });
      lock.unlock();
      WriteCounted();
      lock.lock();
    }
  });
}

void ExpertLoadFile::WriteCounted() {
  ExpertTokens tokens = before_;
  AddTokens(counted_(), &tokens);
  const Status status = Write(tokens);
  if (!status.ok()) spdlog::warn("{}", status.message());
}

Result<std::unique_ptr<ExpertLoadFile>> OpenExpertLoad(const std::string& path,
                                                       const std::string& model_path,
                                                       ExpertLoadFile::Use use, Split* split) {
  if (path.empty()) return std::unique_ptr<ExpertLoadFile>();
  ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, OpenCheckpoint(model_path));
  const uint32_t experts = checkpoint->config().num_experts;
  if (experts == 0) {
    return InvalidArgument(
        fmt::format("--expert-load {}: the model has no experts: leave it out", path));
  }
  ASSIGN_OR_RETURN(auto file, ExpertLoadFile::Open(path, checkpoint->name(), experts, use));
  split->expert_loads = file->tokens();
  return file;
}

}  // namespace cleave

#include <fmt/core.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/printable.h"
#include "cli/log_setup.h"
#include "cli/service.h"
#include "cli/verbs.h"
#include "http/client.h"

namespace cleave {
namespace {

using nlohmann::ordered_json;

constexpr char kChatFooter[] =
    R"(In the chat: /clear forgets the conversation, /system TEXT sets the system prompt,
/quit ends. Ctrl-C stops an answer. Without a terminal, each line of standard input is a
question.)";

std::atomic<bool> interrupted{false};

struct ChatFlags {
  ModelFlags model;  // the positional is a URL or a model
  std::string served_model_name;
  std::string api_key;
  std::string system;
  std::string message;
  int64_t max_tokens = 0;
  double temperature = -1;
  std::optional<int64_t> seed;
};

// What one answer took.
struct AnswerTimes {
  double first_token_s = 0;
  double total_s = 0;
  int64_t completion_tokens = 0;
};

class Conversation {
 public:
  Conversation(http::Client client, const ChatFlags& flags)
      : client_(std::move(client)), flags_(flags) {
    dim_ = ::isatty(STDERR_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
    Clear();
  }

  void Clear() {
    messages_ = ordered_json::array();
    if (!flags_.system.empty()) Add("system", flags_.system);
  }
  void SetSystem(const std::string& text) {
    flags_.system = text;
    Clear();
  }

  // Streams the answer to standard output; keeps it in the history.
  Status Ask(const std::string& question) {
    Add("user", question);
    std::string answer;
    AnswerTimes times;
    Status status = Stream(&answer, &times);
    fmt::print("\n");
    std::fflush(stdout);
    if (!status.ok()) {
      messages_.erase(messages_.size() - 1);  // the question was not answered
      return status;
    }
    Add("assistant", answer);
    ShowTimes(times);
    return OkStatus();
  }

 private:
  void Add(const std::string& role, const std::string& content) {
    messages_.push_back({{"role", role}, {"content", content}});
  }

  [[nodiscard]] std::string Body() const {
    ordered_json body{
        {"messages", messages_}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
    if (!flags_.served_model_name.empty()) body["model"] = flags_.served_model_name;
    if (flags_.max_tokens > 0) body["max_tokens"] = flags_.max_tokens;
    if (flags_.temperature >= 0) body["temperature"] = flags_.temperature;
    if (flags_.seed) body["seed"] = *flags_.seed;
    return body.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  }

  Status Stream(std::string* answer, AnswerTimes* times) const {
    const TimePoint start = SteadyClock::now();
    bool finished = false;
    std::string failure;
    const auto on_event = [&](std::string_view data) {
      if (data == "[DONE]") {
        finished = true;
        return false;
      }
      const ordered_json event = ordered_json::parse(data, nullptr, false);
      if (!event.is_object()) return true;
      if (event.contains("error")) {
        failure = event["error"].value("message", "the server reported an error");
        return false;
      }
      if (event.contains("usage") && event["usage"].is_object()) {
        times->completion_tokens = event["usage"].value("completion_tokens", int64_t{0});
      }
      for (const auto& choice : event.value("choices", ordered_json::array())) {
        const auto delta = choice.value("delta", ordered_json::object());
        if (!delta.contains("content") || !delta["content"].is_string()) continue;
        const auto& text = delta["content"].get_ref<const std::string&>();
        if (text.empty()) continue;
        if (answer->empty()) times->first_token_s = SecondsBetween(start, SteadyClock::now());
        answer->append(text);
        fmt::print("{}", text);
        std::fflush(stdout);
      }
      return !interrupted.load();
    };
    const auto response = client_.PostForEvents("/v1/chat/completions", Body(), on_event);
    times->total_s = SecondsBetween(start, SteadyClock::now());
    RETURN_IF_ERROR(response.status());
    if (response->status != 200) return Refusal(*response);
    if (!failure.empty()) return Unavailable(failure);
    if (finished || interrupted.load()) return OkStatus();
    return Unavailable("the answer was cut short");
  }

  static Status Refusal(const http::ClientResponse& response) {
    const ordered_json body = ordered_json::parse(response.body, nullptr, false);
    std::string message = response.body.substr(0, 300);
    if (body.is_object() && body.contains("error") && body["error"].is_object()) {
      message = body["error"].value("message", message);
    }
    return Unavailable(fmt::format("the server answered {}: {}", response.status, message));
  }

  void ShowTimes(const AnswerTimes& times) const {
    const double decode_s = times.total_s - times.first_token_s;
    const double rate = decode_s > 0 && times.completion_tokens > 1
                            ? static_cast<double>(times.completion_tokens - 1) / decode_s
                            : 0;
    fmt::print(stderr, "{}{} tokens, first after {:.0f} ms, then {:.1f} tokens/s{}\n",
               dim_ ? "\033[2m" : "", times.completion_tokens, times.first_token_s * 1000, rate,
               dim_ ? "\033[0m" : "");
  }

  http::Client client_;
  ChatFlags flags_;
  ordered_json messages_;
  bool dim_ = false;
};

bool LooksLikeUrl(const std::string& text) {
  if (text.starts_with("http://") || text.starts_with("https://")) return true;
  if (std::filesystem::exists(text) || text.find('/') != std::string::npos) return false;
  const size_t colon = text.rfind(':');
  return colon != std::string::npos && colon + 1 < text.size() &&
         text.find_first_not_of("0123456789", colon + 1) == std::string::npos;
}

// Serves the model in this process on a free loopback port.
Result<std::unique_ptr<Service>> ServeHere(const ChatFlags& flags) {
  ServeFlags serve;
  serve.model = flags.model;
  serve.port = 0;
  serve.access_log = false;
  serve.model.max_num_seqs = 1;
  serve.Finish();
  ASSIGN_OR_RETURN(std::unique_ptr<Service> service, Service::Start(serve));
  const bool show = ::isatty(STDERR_FILENO) == 1;
  RETURN_IF_ERROR(service->Load([show](double share) {
    if (show) fmt::print(stderr, "\rloading {:3.0f} %", share * 100);
  }));
  if (show) fmt::print(stderr, "\r\033[K");
  return service;
}

// False when the user is done.
bool HandleCommand(const std::string& line, Conversation* conversation) {
  if (line == "/quit" || line == "/exit") return false;
  if (line == "/clear") {
    conversation->Clear();
  } else if (line.starts_with("/system ")) {
    conversation->SetSystem(line.substr(8));
  } else {
    fmt::print(stderr, "{}\n", kChatFooter);
  }
  return true;
}

int Talk(Conversation* conversation) {
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  int exit_code = 0;
  for (std::string line;;) {
    interrupted = false;
    if (terminal) fmt::print("\n> ");
    std::fflush(stdout);
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    if (line[0] == '/') {
      if (!HandleCommand(line, conversation)) break;
      continue;
    }
    const Status status = conversation->Ask(line);
    if (!status.ok()) {
      fmt::print(stderr, "cleave chat: {}\n", Printable(status.message()));
      if (!terminal) return 1;
      exit_code = 1;
    } else {
      exit_code = 0;
    }
  }
  return exit_code;
}

int Fail(const Status& status) {
  fmt::print(stderr, "cleave chat: {}\n", Printable(status.message()));
  return status.code() == StatusCode::kInvalidArgument ? 2 : 1;
}

void AddFlags(ChatFlags* flags, OptionTable* table) {
  flags->model.model = "http://127.0.0.1:8000";
  flags->model.AddTo(table);
  table->Text("Chat", "--message", "Ask this, print the answer, end", &flags->message);
  table->Text("Chat", "--system", "System prompt", &flags->system);
  table->Count("Chat", "--max-tokens", "Longest answer in tokens; 0: what the context leaves", 0,
               1 << 24, &flags->max_tokens);
  table->Number("Chat", "--temperature", "Sampling temperature; -1: the server's default", -1, 2,
                &flags->temperature);
  table->CountOrAuto("Chat", "--seed", "Seed of the answers", 0, INT64_MAX, &flags->seed);
  table->Text("Chat", "--served-model-name", "Model name to ask for; default: the server's",
              &flags->served_model_name);
  table->Text("Chat", "--api-key", "Bearer token of the server", &flags->api_key);
  table->Footer(kChatFooter);
}

}  // namespace

int RunChat(const std::vector<std::string>& args) {
  ChatFlags flags;
  OptionTable table("chat",
                    "Talk in the terminal to a server (URL, default http://127.0.0.1:8000) or to a "
                    "model that this command loads.");
  AddFlags(&flags, &table);
  const auto parsed = table.Parse(args);
  if (!parsed.ok()) return Fail(parsed.status());
  if (*parsed == OptionTable::Parsed::kHelpShown) return 0;
  SetUpLogging("warning", "text");

  std::string address = flags.model.model;
  std::unique_ptr<Service> service;
  if (!LooksLikeUrl(address)) {
    auto started = ServeHere(flags);
    if (!started.ok()) return Fail(started.status());
    service = std::move(*started);
    address = fmt::format("http://127.0.0.1:{}", service->port());
  }
  const auto url = http::Url::ParseServer(address);
  if (!url.ok()) return Fail(url.status());
  ::signal(SIGINT, [](int) { interrupted = true; });
  http::ClientOptions options;
  options.api_key = flags.api_key;
  Conversation conversation(http::Client(*url, options), flags);
  if (flags.message.empty()) return Talk(&conversation);
  const Status status = conversation.Ask(flags.message);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace cleave

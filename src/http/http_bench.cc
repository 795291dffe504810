// What a request and an event cost.
//
//   HealthOverOneConnection   round trips of GET /health, one client, both sides on this machine
//   StreamOfEvents            one generated token to one SSE event in a buffer: undo, JSON, no
//   socket
#include <benchmark/benchmark.h>
#include <ctime>

#include "http/openai/answer.h"
#include "http/server.h"
#include "http/testing/fake_engine.h"
#include "http/testing/fake_text.h"
#include "http/testing/raw_client.h"

namespace cleave {
namespace {

void HealthOverOneConnection(benchmark::State& state) {
  http::Server::Options options;
  options.error_body = [](int, std::string_view) { return std::string(); };
  auto listening = http::Server::Listen(options, [](http::Request&&, auto writer) {
    http::Response response;
    response.content_type.clear();
    writer->Send(std::move(response));
  });
  if (!listening.ok()) return state.SkipWithError("no port");
  auto server = std::move(listening).value();
  server->Start();
  // Sixteen requests are under way at a time, so that the server's thread is the limit.
  constexpr int kPipelined = 16;
  std::string requests;
  for (int i = 0; i < kPipelined; ++i) requests += testing::GetText("/health");
  testing::RawClient client(server->port());
  for (auto _ : state) {
    client.Send(requests);
    for (int i = 0; i < kPipelined; ++i) benchmark::DoNotOptimize(client.Read().status);
  }
  state.SetItemsProcessed(state.iterations() * kPipelined);
  server->Stop(http::Milliseconds(0));
}
BENCHMARK(HealthOverOneConnection)->UseRealTime();

void StreamOfEvents(benchmark::State& state) {
  const testing::FakeTokenizer tokenizer;
  openai::AnswerInput input;
  input.id = "chatcmpl-0123456789abcdef0123456789abcdef";
  input.tokenizer = &tokenizer;
  input.generation.model = "HuggingFaceTB/SmolLM2-135M-Instruct";
  input.generation.stream = true;
  input.prompts.resize(1);
  openai::Choice choice(&tokenizer, input.generation);
  auto answer = openai::MakeChatStream(input);
  std::string out;
  for (auto _ : state) {
    out.clear();
    answer->Add(0, choice.token_count(), choice.Push(testing::Step(1, {257})), &out);
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(StreamOfEvents);

}  // namespace
}  // namespace cleave

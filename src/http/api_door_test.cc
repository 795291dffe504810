// The API's door and its small routes: keys, methods, probes, models, tokens, metrics, bodies that
// are wrong.

#include <gmock/gmock.h>

#include "http/api_test_fixture.h"
#include "http/door.h"
#include "http/routes.h"

namespace cleave::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(ApiTest, IsAliveButNotReadyWithoutAModel) {
  Listen();
  EXPECT_EQ(Get("/live").status, 200);
  EXPECT_EQ(Get("/health").status, 503);
  EXPECT_EQ(Get("/health").body, "");
  EXPECT_EQ(Get("/ready").status, 503);
  EXPECT_THAT(Get("/ready").body, HasSubstr("loading the model"));
  api_->SetLoading("repacking: layer 3 of 30");
  EXPECT_THAT(Get("/ready").body, HasSubstr("layer 3 of 30"));
  const RawResponse r = Post(kChat, std::string("{") + kHi + "}");
  EXPECT_EQ(r.status, 503);
  EXPECT_THAT(r.body, HasSubstr("layer 3 of 30"));
  EXPECT_EQ(r.headers.at("retry-after"), "1");
  EXPECT_EQ(Get("/metrics").status, 200);
  EXPECT_EQ(Json::parse(Get("/v1/bill").body)["axes"], Json::array());
  EXPECT_THAT(Get("/v1/models").body, HasSubstr(R"("max_model_len":null)"));
  api_->SetModel({&engine_, &tokenizer_, template_.get(), defaults_, vocab_size_});
  EXPECT_EQ(Get("/ready").status, 200);
  EXPECT_EQ(Get("/ready").body, R"({"status":"ready"})");
  EXPECT_EQ(Get("/health").status, 200);
}

TEST_F(ApiTest, ReadyMeansThatStepsProgress) {
  options_.stall_timeout = std::chrono::milliseconds(50);
  Serve();
  EngineStats stats;
  stats.last_progress = SteadyClock::now() - std::chrono::seconds(5);
  engine_.SetStats(stats);
  EXPECT_EQ(Get("/ready").status, 200);  // nothing runs: nothing is late
  stats.running = 2;
  engine_.SetStats(stats);
  EXPECT_EQ(Get("/ready").status, 503);
  EXPECT_THAT(Get("/ready").body, HasSubstr("2 sequences run and no step ended for 5 s"));
  EXPECT_EQ(Get("/health").status, 503);
  EXPECT_EQ(Get("/live").status, 200);
  stats.running = 0;
  engine_.SetStats(stats);
  engine_.SetHealth(Unavailable("rank 0 exited"));
  EXPECT_THAT(Get("/ready").body, HasSubstr("the engine does not serve: rank 0 exited"));
  EXPECT_EQ(Get("/ping").status, 503);
}

TEST_F(ApiTest, KeysGuardV1) {
  options_.api_keys = {"first", "second key"};
  Script({256});
  Serve();
  const std::string body = std::string("{") + kHi + "}";
  struct Case {
    const char* headers;
    int status;
  };
  const Case cases[] = {
      {"", 401},
      {"Authorization: Bearer first\r\n", 200},
      {"authorization: bearer second key\r\n", 200},
      {"Authorization: Bearer firs\r\n", 401},
      {"Authorization: Bearer firstt\r\n", 401},
      {"Authorization: Bearer \r\n", 401},
      {"Authorization: Basic first\r\n", 401},
      {"Authorization: first\r\n", 401},
      {"Authorization: Bearer first\r\nAuthorization: Bearer first\r\n", 401},
      {"X-Api-Key: first\r\n", 401},
  };
  for (const Case& c : cases) EXPECT_EQ(Post(kChat, body, c.headers).status, c.status) << c.headers;
  const RawResponse refused = Get("/v1/models");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(Json::parse(refused.body)["error"]["type"], "AuthenticationError");
  EXPECT_EQ(Get("/v1/nothing").status, 401);
  EXPECT_EQ(Get("/v1").status, 401);
  EXPECT_EQ(Get("http://test/v1/models").status, 401);
  for (const char* path : {"//v1/models", "/V1/models", "/v1/../v1/models", "/%761/models"}) {
    EXPECT_NE(Get(path).status, 200) << path;
  }
  for (const char* path : {"/health", "/ready", "/metrics", "/version"}) {
    EXPECT_EQ(Get(path).status, 200) << path;
  }
}

TEST_F(ApiTest, RoutesByPathAndMethod) {
  Serve();
  struct Case {
    const char* request;
    int status;
    const char* allow;
  };
  const Case cases[] = {
      {"GET /nothing", 404, ""},
      {"GET /", 404, ""},
      {"GET *", 404, ""},
      {"GET /v1/models/", 404, ""},
      {"GET /v1/chat/completions", 405, "POST, OPTIONS"},
      {"DELETE /v1/models", 405, "GET, HEAD, OPTIONS"},
      {"BREW /metrics", 405, "GET, HEAD, OPTIONS"},
      {"OPTIONS /v1/models", 204, "GET, HEAD, OPTIONS"},
      {"POST /ping", 200, ""},
      {"GET /health?x=1", 200, ""},
      {"GET http://any/version", 200, ""},
  };
  for (const Case& c : cases) {
    RawClient client(api_->port());
    client.Send(std::string(c.request) + " HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n");
    const RawResponse r = client.Read();
    EXPECT_EQ(r.status, c.status) << c.request;
    if (*c.allow != '\0') {
      EXPECT_EQ(r.headers.at("allow"), c.allow) << c.request;
    }
    if (r.status >= 400) {
      EXPECT_EQ(Json::parse(r.body)["error"]["code"], c.status);
    }
    EXPECT_TRUE(r.headers.count("x-request-id")) << c.request;
  }
}

TEST_F(ApiTest, OriginsAreAllowedByName) {
  options_.allowed_origins = {"https://a.example"};
  Serve();
  const RawResponse yes = Get("/version", "Origin: https://a.example\r\n");
  EXPECT_EQ(yes.headers.at("access-control-allow-origin"), "https://a.example");
  EXPECT_FALSE(Get("/version", "Origin: https://b.example\r\n")
                   .headers.count("access-control-allow-origin"));
}

TEST_F(ApiTest, DataParallelRankIsChecked) {
  Script({256});
  Serve();
  const std::string body = std::string("{") + kHi + "}";
  EXPECT_EQ(Post(kChat, body, "X-data-parallel-rank: 0\r\n").status, 200);
  EXPECT_EQ(Post(kChat, body, "X-data-parallel-rank: 1\r\n").status, 400);
  EXPECT_EQ(Post(kChat, body, "X-data-parallel-rank: x\r\n").status, 400);
}

TEST_F(ApiTest, DataParallelRankPinsTheReplica) {
  options_.data_parallel_size = 3;
  Script({256});
  Serve();
  const std::string body = std::string("{") + kHi + "}";
  EXPECT_EQ(Post(kChat, body, "X-data-parallel-rank: 2\r\n").status, 200);
  EXPECT_EQ(Post(kChat, body).status, 200);
  for (const char* wrong : {"3", "-1", "+1", "1 2", "", "99999999999"}) {
    const RawResponse refused =
        Post(kChat, body, "X-data-parallel-rank: " + std::string(wrong) + "\r\n");
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_NE(refused.body.find("must be 0 to 2: there are 3 data-parallel ranks"),
              std::string::npos);
  }
  const std::vector<SequenceSpec> submitted = engine_.submitted();
  ASSERT_EQ(submitted.size(), 2U);
  EXPECT_EQ(submitted[0].replica, 2);
  EXPECT_EQ(submitted[1].replica, -1);
}

TEST_F(ApiTest, ListsModels) {
  Serve();
  const Json list = Json::parse(Get("/v1/models").body);
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2U);
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(list["data"][1]["max_model_len"], 256);
  EXPECT_EQ(Json::parse(Get("/v1/models/tiny").body)["id"], "tiny");
  EXPECT_EQ(Json::parse(Get("/v1/models/org/alias").body)["id"], "org/alias");
  EXPECT_EQ(Json::parse(Get("/v1/models/org%2Falias").body)["id"], "org/alias");
  EXPECT_EQ(Get("/v1/models/no").status, 404);
  EXPECT_EQ(Get("/v1/models/%zz").status, 404);
  EXPECT_EQ(Get("/v1/models/%").status, 404);
  EXPECT_EQ(Get("/v1/models/%ff").status, 404);
}

TEST_F(ApiTest, TokenizesDetokenizesAndRenders) {
  Serve();
  EXPECT_EQ(PostJson("/tokenize", R"("prompt":"hello<s>","return_token_strs":true)").dump(),
            R"({"count":3,"max_model_len":256,"tokens":[300,256,300],)"
            R"("token_strs":["<s>","hello","<s>"]})");
  EXPECT_EQ(PostJson("/tokenize", R"("prompt":"ab","add_special_tokens":false)").dump(),
            R"({"count":1,"max_model_len":256,"tokens":[259],"token_strs":null})");
  const Json chat = PostJson("/tokenize", std::string(kHi) + R"(,"add_generation_prompt":false)");
  EXPECT_EQ(PostJson("/detokenize", R"("tokens":)" + chat["tokens"].dump())["prompt"],
            "<|im_start|>user\nhi<|im_end|>\n");
  const Json rendered = PostJson("/v1/chat/completions/render", kHi);
  EXPECT_EQ(rendered["prompt"], "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(rendered["token_ids"].size(), chat["count"].get<size_t>() + 11);
  EXPECT_EQ(PostJson("/v1/completions/render", R"("prompt":"ab")").dump(),
            R"({"token_ids":[300,259],"prompt":"ab"})");
  EXPECT_EQ(PostJson("/v1/completions/render", R"("prompt":[[256],[259]])").dump(),
            R"([{"token_ids":[256],"prompt":"hello"},{"token_ids":[259],"prompt":"ab"}])");
  EXPECT_EQ(Post("/v1/chat/completions/render", R"({"messages":[]})").status, 400);
  EXPECT_TRUE(engine_.submitted().empty());
}

TEST_F(ApiTest, BodiesThatAreWrongAreTheClientsFault) {
  Serve();
  const std::string deep(100'000, '[');
  for (const char* path : {kChat, kCompletions, "/tokenize", "/detokenize"}) {
    for (const std::string& body :
         {std::string(), std::string("[]"), std::string("{"), std::string("nul"),
          std::string("\xEF\xBB\xBF"), std::string("{\"a\":\"\xFF\"}"), deep,
          std::string("{\"messages\":{},\"prompt\":{},\"tokens\":{}}")}) {
      const RawResponse r = Post(path, body);
      EXPECT_EQ(r.status, 400) << path << " " << body.substr(0, 40);
      EXPECT_TRUE(Json::parse(r.body)["error"].contains("message"));
    }
  }
  RawClient client(api_->port());
  client.Send(
      "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\n"
      "Content-Length: 2\r\n\r\n{}");
  const RawResponse r = client.Read();
  EXPECT_EQ(r.status, 400);
  EXPECT_THAT(r.body, HasSubstr("application/json"));
}

TEST_F(ApiTest, MediaTypesAreComparedWithoutCase) {
  Serve();
  for (const char* type :
       {"Application/JSON", "APPLICATION/json\t; charset=utf-8", "application/Merge-Patch+JSON"}) {
    RawClient client(api_->port());
    client.Send(std::string("POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: ") + type +
                "\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}");
    EXPECT_EQ(client.Read().status, 200) << type;
  }
}

TEST_F(ApiTest, IdsTheModelHasNoRowForAreRefused) {
  vocab_size_ = 300;
  Script({256});
  Serve();
  EXPECT_EQ(Post(kCompletions, R"({"prompt":[299]})").status, 200);
  const RawResponse r = Post(kCompletions, R"({"prompt":[300]})");
  EXPECT_EQ(r.status, 400);
  EXPECT_THAT(r.body, HasSubstr("prompt[0] must be a token id in [0, 300), got 300"));
}

TEST_F(ApiTest, ServerErrorsHaveTheSameShape) {
  options_.limits.body_bytes = 100;
  Serve();
  const RawResponse r = Post(kChat, std::string(101, 'x'));
  EXPECT_EQ(r.status, 413);
  EXPECT_EQ(Json::parse(r.body)["error"]["type"], "BadRequestError");
}

TEST_F(ApiTest, CountsRequestsByRoute) {
  Script({256});
  Serve();
  Post(kChat, std::string("{") + kHi + R"(,"n":2})");
  Post(kChat, "{}");
  Get("/nothing");
  Get("/health");
  EXPECT_TRUE(api_->WaitIdle(SteadyClock::now() + std::chrono::seconds(10)));
  const RawResponse r = Get("/metrics");
  EXPECT_EQ(r.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_THAT(r.body, HasSubstr("http_requests_total{handler=\"/v1/chat/completions\","
                                "method=\"POST\",status=\"2xx\"} 1\n"));
  EXPECT_THAT(r.body, HasSubstr("http_requests_total{handler=\"/v1/chat/completions\","
                                "method=\"POST\",status=\"4xx\"} 1\n"));
  EXPECT_THAT(r.body, HasSubstr("handler=\"none\",method=\"GET\",status=\"4xx\"} 1\n"));
  EXPECT_THAT(r.body, Not(HasSubstr("handler=\"/health\"")));
  EXPECT_THAT(r.body, HasSubstr("vllm:request_params_n_sum{engine=\"0\",model_name=\"tiny\"} 2\n"));
  EXPECT_EQ(Get("/load").body, R"({"server_load":0})");
}

TEST_F(ApiTest, TheBillSaysWhatRanksMoved) {
  Serve();
  EXPECT_EQ(Json::parse(Get("/v1/bill").body)["axes"], Json::array());
  EXPECT_EQ(Json::parse(Get("/v1/bill").body)["ranks"], Json::array()) << "one rank owes nothing";
  Bill bill = {.split = {.dp = 2, .tp = 2}, .ranks = std::vector<RankBill>(4)};
  bill.ranks[3].of(Axis::kTp, CommOp::kAllReduce) = {.calls = 60,
                                                     .bytes = 138300,
                                                     .predicted_calls = 60,
                                                     .predicted_bytes = 138300,
                                                     .transfer_ns = 1'500'000'000,
                                                     .wait_ns = 250'000'000};
  engine_.SetBill(bill);
  EngineStats stats;
  stats.generation_tokens = 30;
  engine_.SetStats(stats);
  const Json json = Json::parse(Get("/v1/bill").body);
  EXPECT_EQ(json["axes"][0]["axis"], "tp");
  EXPECT_EQ(json["axes"][0]["ops"][0]["metered_bytes"], 138300);
  EXPECT_EQ(json["per_generated_token"]["axes"][0]["ops"][0]["bytes"], 4610.0);
  EXPECT_EQ(json["ranks"][3]["replica"], 1);
  EXPECT_EQ(json["ranks"][3]["tp"], 1);
  const std::string metrics = Get("/metrics").body;
  const std::string labels =
      R"({axis="tp",engine="1",model_name="tiny",op="all_reduce",rank="1"} )";
  EXPECT_THAT(metrics, HasSubstr("cleave_comm_bytes_total" + labels + "138300\n"));
  EXPECT_THAT(metrics, HasSubstr("cleave_comm_predicted_bytes_total" + labels + "138300\n"));
  EXPECT_THAT(metrics, HasSubstr("cleave_comm_calls_total" + labels + "60\n"));
  EXPECT_THAT(metrics, HasSubstr("cleave_comm_transfer_seconds_total" + labels + "1.5\n"));
  EXPECT_THAT(metrics, HasSubstr("cleave_comm_wait_seconds_total" + labels + "0.25\n"));
}

TEST(DoorTest, RequestIdsAreEchoedOnlyWhenPlain) {
  http::Request request;
  EXPECT_EQ(ClientRequestId(request), "");
  request.headers = {{"X-Request-ID", "a-1"}};
  EXPECT_EQ(ClientRequestId(request), "a-1");
  for (const std::string& bad : {std::string("a b"), std::string("a\x1b[0m"), std::string(129, 'x'),
                                 std::string("\xC3\xA9")}) {
    request.headers[0].value = bad;
    EXPECT_EQ(ClientRequestId(request), "") << bad;
  }
  EXPECT_EQ(NewRequestId().size(), 32U);
  EXPECT_NE(NewRequestId(), NewRequestId());
}

}  // namespace
}  // namespace cleave::testing

#include "http/wire.h"

#include <gtest/gtest.h>

namespace cleave::http {
namespace {

TEST(WireTest, SplitsTargets) {
  struct Case {
    const char* target;
    const char* path;
    const char* query;
  };
  const Case cases[] = {
      {"/v1/models", "/v1/models", ""},
      {"/a?b=c?d", "/a", "b=c?d"},
      {"/a#frag?x", "/a", ""},
      {"http://host:80/p?q", "/p", "q"},
      {"HTTPS://host", "/", ""},
      {"http://host?q", "/", "q"},
      {"*", "*", ""},
      {"//v1", "//v1", ""},
  };
  for (const Case& c : cases) {
    std::string path;
    std::string query;
    SplitTarget(c.target, &path, &query);
    EXPECT_EQ(path, c.path) << c.target;
    EXPECT_EQ(query, c.query) << c.target;
  }
}

TEST(WireTest, FormatsHeads) {
  Response response;
  response.body = "{}";
  response.headers = {{"X-A", "1"}, {"X-Bad", "a\r\nSet-Cookie: b"}};
  HeadOptions options;
  options.close = true;
  options.now = 784111777;  // RFC 9110's example
  EXPECT_EQ(FormatHead(response, options),
            "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
            "Content-Type: application/json\r\nContent-Length: 2\r\nX-A: 1\r\n"
            "Connection: close\r\n\r\n");
  response = Response();
  response.status = 204;
  response.content_type.clear();
  EXPECT_EQ(FormatHead(response, {}),
            "HTTP/1.1 204 No Content\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n");
}

TEST(WireTest, ChunksCarryTheirLengthAndNothingIsNoChunk) {
  std::string out;
  AppendChunk("0123456789abcdef", &out);
  AppendChunk("", &out);
  EXPECT_EQ(out, "10\r\n0123456789abcdef\r\n");
}

TEST(WireTest, FindsHeadersInAnyCase) {
  Request request;
  request.headers = {{"content-TYPE", "a"}, {"Content-Type", "b"}};
  ASSERT_NE(request.Find("Content-Type"), nullptr);
  EXPECT_EQ(*request.Find("Content-Type"), "a");
  EXPECT_EQ(request.Find("Content-Typ"), nullptr);
}

}  // namespace
}  // namespace cleave::http

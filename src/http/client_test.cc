#include "http/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cleave::http {
namespace {

using testing::HasSubstr;

std::string Parts(const Result<Url>& url) {
  if (!url.ok()) return url.status().message();
  return url->host + " " + std::to_string(url->port) + " " + url->path;
}

TEST(Url, HasHostPortAndPath) {
  EXPECT_EQ(Parts(Url::Parse("http://a")), "a 80 ");
  EXPECT_EQ(Parts(Url::Parse("a:8000/")), "a 8000 ");
  EXPECT_EQ(Parts(Url::Parse("http://[::1]:81/b/c//")), "::1 81 /b/c");
}

TEST(Url, WhatIsNoAddressIsRefused) {
  EXPECT_THAT(Parts(Url::Parse("https://a")), HasSubstr("https is not spoken here"));
  for (const char* port : {"a:", "a:0", "a:65536", "a:x", "a:1x", "[::1]x", "a:-1"}) {
    EXPECT_THAT(Parts(Url::Parse(port)), HasSubstr("from 1 to 65535")) << port;
  }
  EXPECT_THAT(Parts(Url::Parse("[::1")), HasSubstr("no ']'"));
  for (const char* host : {"", "http://", ":80", "/v1"}) {
    EXPECT_THAT(Parts(Url::Parse(host)), HasSubstr("no host")) << host;
  }
}

TEST(Url, AServersAddressMayEndInV1AsItsClientsBaseAddressesDo) {
  for (const char* text :
       {"http://a:1", "http://a:1/", "http://a:1/v1", "http://a:1/v1/", "a:1//v1"}) {
    EXPECT_EQ(Parts(Url::ParseServer(text)), "a 1 ") << text;
  }
  EXPECT_EQ(Parts(Url::ParseServer("http://a:1/llm/v1")), "a 1 /llm");
  EXPECT_EQ(Parts(Url::ParseServer("http://a:1/v11")), "a 1 /v11");
  EXPECT_EQ(Parts(Url::ParseServer("http://a:1/v1/x")), "a 1 /v1/x");
  EXPECT_THAT(Parts(Url::ParseServer("https://a/v1")), HasSubstr("https"));
}

}  // namespace
}  // namespace cleave::http

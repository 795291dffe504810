#include "cli/args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cli/option_table.h"
#include "cli/vllm_flags.h"

namespace cleave {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Args, RewritesSpellings) {
  const std::vector<FlagAlias> aliases{{"-tp", "--tensor-parallel-size"}};
  const std::vector<std::string> args{"m",    "-tp=2", "--max_num_seqs", "8", "-1",
                                      "--k=", "--",    "--a_b=c"};
  EXPECT_THAT(NormaliseArgs(args, aliases),
              ElementsAre("m", "--tensor-parallel-size=2", "--max-num-seqs", "8", "-1", "--k", "",
                          "--", "--a_b=c"));
}

TEST(Args, NamesAFlagOfVllmAsSuch) {
  EXPECT_TRUE(IsVllmFlag("--enable-lora"));
  EXPECT_FALSE(IsVllmFlag("--enable-loras"));
  const std::vector<std::string> known{"--port", "--host"};
  const auto check = [&](const std::string& flag) {
    return CheckFlags(std::vector<std::string>{flag}, known, "serve").message();
  };
  EXPECT_EQ(check("--port"), "");
  for (const char* flag : {"--enable-lora", "--compilation-config.mode", "-cc.mode=3",
                           "--hf-overrides.rope.theta=1", "-O3", "-O", "-O.mode=3"}) {
    EXPECT_THAT(check(flag), HasSubstr("flag of vLLM that cleave serve does not have yet")) << flag;
  }
  EXPECT_THAT(check("-Ofast"), HasSubstr("unknown flag -Ofast"));
  EXPECT_THAT(check("--ports.x"), HasSubstr("unknown flag --ports.x"));
  EXPECT_THAT(check("--prot"), HasSubstr("did you mean --port?"));
  EXPECT_THAT(check("--zzzzzz"), HasSubstr("cleave serve --help lists them"));
}

TEST(Args, ReadsIntegersAsPeopleWriteThem) {
  EXPECT_EQ(ParseHumanInteger("4096").value(), 4096);
  EXPECT_EQ(ParseHumanInteger("8k").value(), 8000);
  EXPECT_EQ(ParseHumanInteger("8K").value(), 8192);
  EXPECT_EQ(ParseHumanInteger("1.5G").value(), 3LL << 29);
  EXPECT_EQ(ParseHumanInteger("2GiB").value(), 2LL << 30);
  EXPECT_EQ(ParseHumanInteger("-1").value(), -1);
  for (const char* bad : {"", "x", "1.5", "nan", "inf", "1kk", "1e40", "12 "}) {
    EXPECT_THAT(ParseHumanInteger(bad).status().message(), HasSubstr("not a whole number")) << bad;
  }
}

struct Options {
  std::string model;
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  std::optional<int64_t> length;
  double share = 0.9;
  bool cache = true;
  std::vector<std::string> keys;
  std::string format = "text";
};

Status ParseInto(Options* o, const std::vector<std::string>& args) {
  OptionTable table("serve", "Serve.");
  table.Positional("MODEL", "model", &o->model);
  table.Text("Server", "--host", "address", &o->host);
  table.Count("Server", "--port", "port", 0, 65535, &o->port);
  table.CountOrAuto("Engine", "--length", "length", 1, 1 << 20, &o->length);
  table.Number("Engine", "--share", "share", 0, 1, &o->share);
  table.Switch("Engine", "--enable-cache", "cache", &o->cache);
  table.TextList("Server", "--api-key", "keys", &o->keys);
  table.OneOf("Server", "--format", "format", {"text", "json"}, &o->format);
  table.Alias("-p", "--port");
  return table.Parse(args).status();
}

TEST(OptionTable, FillsFields) {
  Options o;
  ASSERT_TRUE(ParseInto(&o, {"m.gguf", "-p", "9", "--length=8k", "--no-enable-cache", "--share",
                             "0.5", "--api-key", "a", "--api-key", "b", "--format", "json"})
                  .ok());
  EXPECT_EQ(o.model, "m.gguf");
  EXPECT_EQ(o.port, 9);
  EXPECT_EQ(o.length, 8000);
  EXPECT_FALSE(o.cache);
  EXPECT_EQ(o.share, 0.5);
  EXPECT_THAT(o.keys, ElementsAre("a", "b"));
  EXPECT_EQ(o.format, "json");
  ASSERT_TRUE(ParseInto(&o, {"--length", "auto", "--enable-cache"}).ok());
  EXPECT_FALSE(o.length.has_value());
  EXPECT_TRUE(o.cache);
}

TEST(OptionTable, WordsAreTakenInAnyCase) {
  for (const char* format : {"json", "JSON", "Json"}) {
    Options o;
    ASSERT_TRUE(ParseInto(&o, {"--format", format}).ok()) << format;
    EXPECT_EQ(o.format, "json");  // as the rest of the program compares it
  }
  Options o;
  o.length = 5;
  ASSERT_TRUE(ParseInto(&o, {"--length=AUTO", "--enable-cache=False"}).ok());
  EXPECT_FALSE(o.length.has_value());
  EXPECT_FALSE(o.cache);
  EXPECT_THAT(ParseInto(&o, {"--format=JSONL"}).message(),
              HasSubstr("--format: 'JSONL' is not one of text, json"));
  EXPECT_FALSE(IsSameWord("a", "ab"));
  EXPECT_FALSE(IsSameWord("@", "`"));
}

TEST(OptionTable, RefusesWithTheFlagAndTheRange) {
  Options o;
  EXPECT_THAT(ParseInto(&o, {"--port", "70000"}).message(),
              testing::AllOf(HasSubstr("--port"), HasSubstr("outside 0 to 65535")));
  EXPECT_THAT(ParseInto(&o, {"--share", "nan"}).message(),
              HasSubstr("--share: 'nan' is not a number in 0 to 1"));
  for (const char* value : {"--enable-cache=maybe", "--no-enable-cache=false"}) {
    EXPECT_FALSE(ParseInto(&o, {value}).ok()) << value;
  }
  for (const auto& empty : {std::vector<std::string>{"--api-key", ""}, {"--api-key="}}) {
    EXPECT_THAT(ParseInto(&o, empty).message(), HasSubstr("--api-key: must not be empty"));
  }
  EXPECT_THAT(ParseInto(&o, {"--format", "xml"}).message(), HasSubstr("not one of text, json"));
  EXPECT_THAT(ParseInto(&o, {"--port"}).message(), HasSubstr("--port"));
  EXPECT_THAT(ParseInto(&o, {"a", "b"}).message(), HasSubstr("b"));
}

TEST(OptionTable, ValuesMayBeginWithADash) {
  Options o;
  ASSERT_TRUE(ParseInto(&o, {"--api-key=-abc", "--host", "- a", "--enable-cache=false"}).ok());
  EXPECT_THAT(o.keys, ElementsAre("-abc"));
  EXPECT_EQ(o.host, "- a");
  EXPECT_FALSE(o.cache);
}

TEST(OptionTable, RefusesAConfigFileThatIsNone) {
  const std::string path = testing::TempDir() + "/args_bad.yaml";
  const auto message = [&](const std::string& text) {
    std::ofstream(path) << text;
    Options o;
    return ParseInto(&o, {"--config=" + path}).message();
  };
  EXPECT_EQ(message("host: -x\napi_key: '-y'\n"), "");
  EXPECT_THAT(message("enable-cache: maybe\n"),
              HasSubstr("--enable-cache: 'maybe' is not true or false"));
  EXPECT_THAT(message("port: 1\nport: 2\n"), HasSubstr(":2:1: port is given twice"));
  EXPECT_THAT(message("config: a.yaml\n"), HasSubstr("belongs on the command line"));
  EXPECT_THAT(message("api-key: ''\n"), HasSubstr("--api-key: must not be empty"));
  EXPECT_THAT(message("host: " + std::string(1U << 20U, 'a')), HasSubstr("at most 1048576 bytes"));
  Options o;
  EXPECT_THAT(ParseInto(&o, {"--config", testing::TempDir()}).message(),
              HasSubstr("cannot be read"));
  EXPECT_THAT(ParseInto(&o, {"--config="}).message(), HasSubstr("needs a file name"));
}

TEST(OptionTable, AWrongValueInAConfigFileNamesItsPlaceItsKeyAndWhatIsTaken) {
  const std::string path = testing::TempDir() + "/args_values.yaml";
  const auto message = [&](const std::string& text) {
    std::ofstream(path) << text;
    Options o;
    return ParseInto(&o, {"--config", path}).message();
  };
  EXPECT_EQ(message("host: a\nport: abc\n"),
            path +
                ":2:7: --port: 'abc' is not a whole number; write 4096, 8k (8000), 8K (8192), "
                "1.5G or 2GiB; 0 to 65535 are taken");
  EXPECT_EQ(message("port: 70000\n"), path + ":1:7: --port: 70000 is outside 0 to 65535");
  EXPECT_EQ(message("format: xml\n"), path + ":1:9: --format: 'xml' is not one of text, json");
  EXPECT_EQ(message("share: 2\n"), path + ":1:8: --share: '2' is not a number in 0 to 1");
  EXPECT_EQ(message("\nenable_cache: 3\n"),
            path + ":2:15: --enable-cache: '3' is not true or false");
  EXPECT_EQ(message("api-key: [a, '']\n"), path + ":1:10: --api-key: must not be empty");
  EXPECT_THAT(message("hots: a\n"), HasSubstr(path + ":1:7: unknown flag --hots; did you mean"));
  EXPECT_THAT(message("'': ''\n"), HasSubstr(path + ":1:1: a flag has a name"));
  for (const char* value : {"{a: 1}", "[[a]]", "[a, {b: 1}]", "~"}) {
    EXPECT_EQ(message(std::string("host: ") + value + "\n"),
              path +
                  ":1:7: --host needs a value or a list of values; a mapping is JSON in quotes "
                  "here");
    EXPECT_THAT(message(std::string("compilation_config: ") + value + "\n"),
                HasSubstr("--compilation-config is a flag of vLLM"));
    EXPECT_THAT(message(std::string("hots: ") + value + "\n"), HasSubstr("unknown flag --hots"));
  }
  // Also where the command line has a better one.
  std::ofstream(path) << "port: abc\n";
  Options o;
  EXPECT_THAT(ParseInto(&o, {"--port", "1", "--config", path}).message(), HasSubstr(path + ":1:7"));
}

TEST(OptionTable, AnErrorFoundLaterNamesThePlaceOfItsFlag) {
  const std::string path = testing::TempDir() + "/args_later.yaml";
  std::ofstream(path) << "host: h\nport: 7\n";
  Options o;
  OptionTable table("serve", "Serve.");
  table.Text("Server", "--host", "address", &o.host);
  table.Count("Server", "--port", "port", 0, 65535, &o.port);
  ASSERT_TRUE(table.Parse({"--config", path, "--host", "mine"}).ok());
  const auto named = [&](const std::string& message) {
    return table.NamePlace(InvalidArgument(message)).message();
  };
  EXPECT_EQ(named("--port 7 is taken"), path + ":2:7: --port 7 is taken");
  EXPECT_EQ(named("choose another --port"), path + ":2:7: choose another --port");
  EXPECT_EQ(named("--host mine: unknown"), "--host mine: unknown");
  EXPECT_EQ(named("--port-range and --ports are odd"), "--port-range and --ports are odd");
  EXPECT_TRUE(table.NamePlace(OkStatus()).ok());
}

TEST(OptionTable, AYamlListIsOneOfAFlagThatTakesMoreThanOneValue) {
  const std::string path = testing::TempDir() + "/args_lists.yaml";
  std::string shares;
  std::string host;
  const auto parse = [&](const std::string& text, std::vector<std::string> more = {}) {
    std::ofstream(path) << text;
    OptionTable table("serve", "Serve.");
    table.Text("The cut", "--tp-shares", "shares", &shares, OptionTable::Values::kWithCommas);
    table.Text("Server", "--host", "address", &host);
    more.insert(more.end(), {"--config", path});
    const auto parsed = table.Parse(more);
    return parsed.ok() ? "" : parsed.status().message();
  };
  EXPECT_EQ(parse("tp_shares: [3, 1, 2]\n"), "");
  EXPECT_EQ(shares, "3,1,2");
  EXPECT_EQ(parse("tp-shares: 4,2\n"), "");
  EXPECT_EQ(shares, "4,2");
  EXPECT_EQ(parse("tp_shares: [3, 1]\n", {"--tp-shares", "1,1"}), "");
  EXPECT_EQ(shares, "1,1");
  EXPECT_EQ(parse("host: [a, b]\n"), path + ":1:7: --host takes one value, not a list");
  EXPECT_THAT(parse("hots: [a, b]\n"), HasSubstr("unknown flag --hots"));
}

TEST(OptionTable, ReadsAYamlFileThatTheCommandLineOverrides) {
  const std::string path = testing::TempDir() + "/args_test.yaml";
  std::ofstream(path) << "host: 0.0.0.0\nport: 1\nenable_cache: false\napi-key: [x, y]\n";
  Options o;
  ASSERT_TRUE(ParseInto(&o, {"m", "--config", path, "--port", "2"}).ok());
  EXPECT_EQ(o.host, "0.0.0.0");
  EXPECT_EQ(o.port, 2);
  EXPECT_FALSE(o.cache);
  EXPECT_THAT(o.keys, ElementsAre("x", "y"));

  std::ofstream(path) << "hots: a\n";
  EXPECT_THAT(ParseInto(&o, {"--config", path}).message(),
              testing::AllOf(HasSubstr(path), HasSubstr("did you mean --host?")));
  std::ofstream(path) << "host: {a: b}\n";
  EXPECT_THAT(ParseInto(&o, {"--config", path}).message(), HasSubstr(":1:"));
  std::ofstream(path) << "host: [\n";
  EXPECT_FALSE(ParseInto(&o, {"--config", path}).ok());
  EXPECT_THAT(ParseInto(&o, {"--config", path + ".no"}).message(), HasSubstr("no such config"));
  EXPECT_THAT(ParseInto(&o, {"--config"}).message(), HasSubstr("needs a file name"));
}

}  // namespace
}  // namespace cleave

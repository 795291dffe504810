#include "model/format/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/format/gguf_types.h"
#include "model/format/test_files.h"

namespace cleave {
namespace {

using testing::ElementsAre;
using testing_files::AsBytes;
using testing_files::GgufWriter;
using testing_files::Raw;
using testing_files::RawString;

GgufWriter Small() {
  GgufWriter writer;
  writer.String("general.architecture", "llama").Uint("answer", 42);
  writer.F32("a", {4, 2}).Tensor({"q", {32, 3}, 3, 60});
  return writer;
}

Status RefusalOf(const std::string& bytes) {
  const auto parsed = ParseGguf(AsBytes(bytes));
  EXPECT_FALSE(parsed.ok());
  return parsed.status();
}

std::string DamageOf(const std::string& bytes) {
  const Status status = RefusalOf(bytes);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
  return status.message();
}

std::string UnsupportedOf(const std::string& bytes) {
  const Status status = RefusalOf(bytes);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported) << status.ToString();
  return status.message();
}

TEST(Gguf, ReadsBothVersionsWithShapesOutermostFirst) {
  for (const uint32_t version : {2U, 3U}) {
    GgufWriter writer = Small();
    writer.version = version;
    const std::string bytes = writer.Build();
    const auto parsed = ParseGguf(AsBytes(bytes));
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(parsed->version, version);
    EXPECT_EQ(parsed->tensor_bytes, 92U);
    const TensorView& a = parsed->tensors.at("a");
    EXPECT_THAT(a.shape, ElementsAre(2, 4));
    EXPECT_EQ(std::to_integer<int>(a.data[0]), 1);
    const TensorView& q = parsed->tensors.at("q");
    EXPECT_EQ(q.dtype, DType::kQ41);
    EXPECT_THAT(q.shape, ElementsAre(3, 32));
    EXPECT_EQ(std::to_integer<int>(q.data[0]), 2);
    EXPECT_EQ((q.data - a.data) % 32, 0);
  }
}

TEST(Gguf, ReadsEveryValueType) {
  GgufWriter writer;
  writer.Entry("u8", GgufType::kUint8, Raw<uint8_t>(200))
      .Entry("i8", GgufType::kInt8, Raw<int8_t>(-5))
      .Entry("u16", GgufType::kUint16, Raw<uint16_t>(60000))
      .Entry("i16", GgufType::kInt16, Raw<int16_t>(-6))
      .Entry("u32", GgufType::kUint32, Raw<uint32_t>(4000000000U))
      .Entry("i32", GgufType::kInt32, Raw<int32_t>(-7))
      .Entry("u64", GgufType::kUint64, Raw<uint64_t>(1ULL << 40U))
      .Entry("i64", GgufType::kInt64, Raw<int64_t>(-8))
      .Entry("f32", GgufType::kFloat32, Raw(1.5F))
      .Entry("f64", GgufType::kFloat64, Raw(2.5))
      .Bool("yes", true)
      .String("text", "héllo")
      .Strings("list", {"one", "", "three"})
      .Array("floats", GgufType::kFloat32, 2, Raw(0.5F) + Raw(-1.0F))
      .Array("flags", GgufType::kBool, 2, std::string("\x01\x00", 2))
      .Array("none", GgufType::kInt32, 0, "");
  const std::string bytes = writer.Build();
  const auto parsed = ParseGguf(AsBytes(bytes));
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  GgufFields fields(*parsed);
  EXPECT_EQ(fields.Int("u8"), 200);
  EXPECT_EQ(fields.Int("i8"), -5);
  EXPECT_EQ(fields.Int("u16"), 60000);
  EXPECT_EQ(fields.Int("i16"), -6);
  EXPECT_EQ(fields.RequiredUint("u32"), 4000000000U);
  EXPECT_EQ(fields.Int("i32"), -7);
  EXPECT_EQ(fields.Int("u64"), 1LL << 40);
  EXPECT_EQ(fields.Int("i64"), -8);
  EXPECT_EQ(fields.Number("f32"), 1.5);
  EXPECT_EQ(fields.Number("f64"), 2.5);
  EXPECT_EQ(fields.Number("i8"), -5.0);
  EXPECT_EQ(fields.Bool("yes"), true);
  EXPECT_EQ(fields.String("text"), "héllo");
  EXPECT_THAT(fields.Strings("list"), ElementsAre("one", "", "three"));
  EXPECT_THAT(fields.Floats("floats"), ElementsAre(0.5F, -1.0F));
  EXPECT_THAT(fields.Ints("flags"), ElementsAre(1, 0));
  EXPECT_TRUE(fields.Ints("none").empty());
  EXPECT_FALSE(fields.Int("absent").has_value());
  EXPECT_TRUE(fields.status().ok());
}

TEST(GgufFields, KeepTheFirstError) {
  GgufWriter writer;
  writer.String("text", "x").Entry("huge", GgufType::kUint64, Raw(~0ULL));
  writer.Entry("minus", GgufType::kInt32, Raw(-1)).Strings("list", {"a"});
  writer.Array("wide", GgufType::kInt64, 1, Raw(1LL << 40));
  const std::string bytes = writer.Build();
  const auto parsed = ParseGguf(AsBytes(bytes));
  ASSERT_TRUE(parsed.ok());
  const auto error = [&parsed](auto read) {
    GgufFields fields(*parsed);
    read(&fields);
    fields.RequiredUint("absent");
    return fields.status().message();
  };
  EXPECT_EQ(error([](auto* f) { f->Int("text"); }),
            "metadata key text is a string; an integer is wanted");
  EXPECT_EQ(error([](auto* f) { f->String("huge"); }),
            "metadata key huge is an integer; a string is wanted");
  EXPECT_EQ(error([](auto* f) { f->Bool("list"); }),
            "metadata key list is an array; a boolean is wanted");
  EXPECT_EQ(error([](auto* f) { f->Strings("text"); }),
            "metadata key text is not an array of strings");
  EXPECT_EQ(error([](auto* f) { f->Int("huge"); }), "metadata key huge does not fit 63 bits");
  EXPECT_EQ(error([](auto* f) { f->RequiredUint("minus"); }),
            "metadata key minus is -1; 0 to 4294967295 is wanted");
  EXPECT_EQ(error([](auto* f) { f->Ints("wide"); }),
            "metadata key wide holds a value beyond 32 bits");
  EXPECT_EQ(error([](auto* f) { f->RequiredNumber("gone"); }), "metadata key gone is missing");
}

TEST(Gguf, RefusesOtherFilesVersionsAndByteOrder) {
  EXPECT_EQ(DamageOf(""), "not a GGUF file: it does not start with \"GGUF\"");
  EXPECT_EQ(DamageOf("GGML" + std::string(40, '\0')),
            "not a GGUF file: it does not start with \"GGUF\"");
  GgufWriter writer = Small();
  writer.version = 1;
  EXPECT_EQ(UnsupportedOf(writer.Build()), "GGUF version 1; versions 2 and 3 are read");
  writer.version = 4;
  EXPECT_EQ(UnsupportedOf(writer.Build()), "GGUF version 4; versions 2 and 3 are read");
  writer.version = 3U << 24U;
  EXPECT_EQ(UnsupportedOf(writer.Build()),
            "a big-endian GGUF file; little-endian ones are read: convert it with gguf-py's "
            "gguf_convert_endian");
}

TEST(Gguf, RefusesCountsBeforeMakingRoom) {
  const auto header = [](uint64_t tensors, uint64_t entries) {
    return "GGUF" + Raw<uint32_t>(3) + Raw(tensors) + Raw(entries) + std::string(100, '\0');
  };
  EXPECT_EQ(DamageOf(header(0, ~0ULL)),
            "header announces 18446744073709551615 metadata entries; at most 65536 are read");
  EXPECT_EQ(DamageOf(header(1ULL << 40U, 0)),
            "header announces 1099511627776 tensors; at most 131072 are read");
  EXPECT_EQ(DamageOf(header(0, 8)),
            "header announces 8 metadata entries, more than a file of 124 bytes can hold");
  EXPECT_EQ(DamageOf(header(4, 0)),
            "header announces 4 tensors, more than a file of 124 bytes can hold");
}

TEST(Gguf, RefusesDamagedMetadata) {
  const auto with = [](auto change) {
    GgufWriter writer;
    change(&writer);
    return writer.Build();
  };
  const auto array = [&with](GgufType type, uint64_t count, const std::string& body) {
    return with([&](GgufWriter* w) { w->Array("k", type, count, body); });
  };
  EXPECT_EQ(DamageOf(with([](auto* w) { w->Uint("", 1); })),
            "metadata entry 0: key of 0 bytes; 1 to 65535 are allowed");
  EXPECT_EQ(DamageOf(with([](auto* w) { w->Uint(std::string(70000, 'k'), 1); })),
            "metadata entry 0: key of 70000 bytes; 1 to 65535 are allowed");
  EXPECT_EQ(DamageOf(with([](auto* w) { w->Uint("k", 1).Uint("k", 2); })),
            "metadata key k appears twice");
  EXPECT_EQ(DamageOf(with([](auto* w) { w->Entry("k", static_cast<GgufType>(13), "abcdefgh"); })),
            "metadata key k: value type 13 is none of the format's");
  EXPECT_EQ(UnsupportedOf(array(GgufType::kArray, 1, std::string(32, '\0'))),
            "metadata key k: an array of arrays is not read");
  EXPECT_EQ(DamageOf(array(GgufType::kUint64, ~0ULL, "")),
            "metadata key k: file is 64 bytes and ends inside 18446744073709551615 values of 8 "
            "bytes at byte 49; fetch it again");
  EXPECT_EQ(DamageOf(array(GgufType::kString, 1ULL << 50U, RawString("only"))),
            "metadata key k: file is 64 bytes and ends inside string 1 of 1125899906842624 at byte "
            "61; fetch it again");
  const std::string entry = RawString("key") + Raw(GgufType::kString) + Raw(~0ULL);
  EXPECT_EQ(DamageOf(with([&entry](auto* w) { w->metadata.push_back(entry); })),
            "metadata key key: file is 64 bytes and ends inside string 0 of 1 at byte 39; fetch it "
            "again");
}

TEST(Gguf, NamesEveryTypeItCanNotRead) {
  const auto with_type = [](uint32_t type) {
    return GgufWriter().Tensor({"blk.0.attn_q.weight", {256}, type, 300}).Build();
  };
  for (const auto& [number, name] : std::map<uint32_t, std::string>{{10, "Q2_K"},
                                                                    {11, "Q3_K"},
                                                                    {9, "Q8_1"},
                                                                    {20, "IQ4_NL"},
                                                                    {23, "IQ4_XS"},
                                                                    {39, "MXFP4"},
                                                                    {24, "I8"},
                                                                    {4, "Q4_2"},
                                                                    {99, "type number 99"}}) {
    EXPECT_EQ(UnsupportedOf(with_type(number)),
              "tensor blk.0.attn_q.weight is stored as " + name +
                  ", which is not supported; supported are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, "
                  "Q8_0, Q4_K, Q5_K, Q6_K");
  }
}

TEST(Gguf, RefusesDamagedTensors) {
  const auto tensor = [](const testing_files::GgufTensorSpec& spec, uint64_t offset = 0) {
    GgufWriter writer;
    return writer.TensorAt(spec, offset).Build();
  };
  EXPECT_EQ(DamageOf(tensor({"", {1}, 0, 4})),
            "tensor description 0: name of 0 bytes; 1 to 1024 are allowed");
  EXPECT_EQ(DamageOf(tensor({"t", {}, 0, 4})), "tensor t has 0 dimensions; 1 to 4 are allowed");
  EXPECT_EQ(DamageOf(tensor({"t", {1, 1, 1, 1, 1}, 0, 4})),
            "tensor t has 5 dimensions; 1 to 4 are allowed");
  EXPECT_EQ(DamageOf(tensor({"t", {4, 0}, 0, 4})), "tensor t has an extent of 0");
  EXPECT_EQ(DamageOf(tensor({"t", {33}, 3, 40})),
            "tensor t: rows of 33 elements; Q4_1 needs multiples of 32 below 2^64 bytes");
  EXPECT_EQ(DamageOf(tensor({"t", {1ULL << 33U, 1ULL << 31U}, 0, 4})),
            "tensor t: its extents multiply to more than 2^64");
  EXPECT_EQ(DamageOf(tensor({"t", {32, 1ULL << 59U}, 2, 18})),
            "tensor t: its extents multiply to more than 2^64");
  EXPECT_EQ(DamageOf(tensor({"t", {1}, 0, 40}, 4)),
            "tensor t: offset 4 is not a multiple of the alignment, 32");
  EXPECT_EQ(DamageOf(tensor({"t", {4}, 0, 16}, 32)),
            "tensor t: file is 80 bytes, but this tensor's 16 bytes end at byte 112; fetch it "
            "again");
  EXPECT_EQ(DamageOf(tensor({"t", {4}, 0, 16}, ~31ULL)),
            "tensor t: file is 80 bytes, but this tensor's 16 bytes end at byte 2^64 or later; "
            "fetch it again");
  EXPECT_EQ(DamageOf(GgufWriter().F32("t", {4}).F32("t", {4}).Build()), "tensor t: appears twice");
}

TEST(Gguf, SaysWhatATruncatedFileNeeds) {
  const std::string bytes = Small().Build();
  const std::string size = std::to_string(bytes.size());
  EXPECT_EQ(DamageOf(bytes.substr(0, bytes.size() - 1)),
            "tensor q: file is " + std::to_string(bytes.size() - 1) +
                " bytes, but this tensor's 60 bytes end at byte " + size + "; fetch it again");
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(RefusalOf(bytes.substr(0, length)).code(), StatusCode::kDataLoss) << length;
  }
}

TEST(Gguf, ChecksTheAlignment) {
  GgufWriter writer = Small();
  writer.Uint("general.alignment", 64);
  writer.alignment = 64;
  // The second tensor was placed for 32.
  EXPECT_THAT(DamageOf(writer.Build()), testing::HasSubstr("is not a multiple of the alignment"));
  for (const uint32_t bad : {0U, 4U, 24U, 1U << 20U}) {
    GgufWriter other;
    other.Uint("general.alignment", bad);
    EXPECT_EQ(DamageOf(other.Build()), "general.alignment is " + std::to_string(bad) +
                                           "; it must be a power of two from 8 to 65536");
  }
}

TEST(Gguf, RefusesASplitModel) {
  GgufWriter writer;
  writer.Entry("split.no", GgufType::kUint16, Raw<uint16_t>(1));
  writer.Entry("split.count", GgufType::kUint16, Raw<uint16_t>(3));
  EXPECT_EQ(UnsupportedOf(writer.Build()),
            "part 2 of a model split into 3 files; join them with `llama-gguf-split --merge "
            "FIRST-PART OUT.gguf`");
  GgufWriter whole = Small();
  whole.Entry("split.count", GgufType::kUint16, Raw<uint16_t>(1));
  EXPECT_TRUE(ParseGguf(AsBytes(whole.Build())).ok());
}

}  // namespace
}  // namespace cleave

#include "model/config.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace cleave {
namespace {

ModelConfig Good() {
  ModelConfig c;
  c.hidden_size = 576;
  c.num_heads = 9;
  c.num_kv_heads = 3;
  c.head_dim = 64;
  c.ffn_size = 1536;
  c.vocab_size = 49152;
  c.max_position = 8192;
  c.layers.resize(2);
  c.attention_scale = 0.125;
  return c;
}

std::string Refusal(const std::function<void(ModelConfig*)>& change) {
  ModelConfig c = Good();
  change(&c);
  const Status status = c.Validate();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return status.message();
}

RopeScaling Scaling(RopeScaling::Kind kind) {
  RopeScaling s;
  s.kind = kind;
  return s;
}

TEST(ModelConfig, AcceptsEveryKindOfScaling) {
  ModelConfig c = Good();
  EXPECT_TRUE(c.Validate().ok());
  c.layers[0].rope_scaling = Scaling(RopeScaling::Kind::kLinear);
  c.layers[1].rope_scaling = Scaling(RopeScaling::Kind::kLlama3);
  EXPECT_TRUE(c.Validate().ok());
  c.layers[1].rope_scaling = Scaling(RopeScaling::Kind::kFactors);
  c.layers[1].rope_scaling.freq_factors.assign(32, 1.0F);
  EXPECT_TRUE(c.Validate().ok()) << c.Validate().ToString();
  EXPECT_EQ(c.q_per_kv(), 3U);
}

TEST(ModelConfig, NamesFieldValueAndLimit) {
  EXPECT_EQ(Refusal([](auto* c) { c->hidden_size = 0; }),
            "hidden_size is 0; it must be between 1 and 131072");
  EXPECT_EQ(Refusal([](auto* c) { c->num_kv_heads = 4; }),
            "num_key_value_heads is 4; it must divide num_attention_heads, 9");
  EXPECT_EQ(Refusal([](auto* c) { c->num_kv_heads = 0; }),
            "num_key_value_heads is 0; it must be between 1 and 9");
  EXPECT_EQ(Refusal([](auto* c) { c->head_dim = 63; }), "head_dim is 63; it must be even");
  EXPECT_EQ(Refusal([](auto* c) {
              c->num_heads = c->num_kv_heads = 4096;
              c->head_dim = 1024;
            }),
            "num_attention_heads times head_dim is 4194304; it must be between 2 and 1048576");
  EXPECT_EQ(Refusal([](auto* c) { c->ffn_size = ~0U; }),
            "intermediate_size is 4294967295; it must be between 1 and 1048576");
  EXPECT_EQ(Refusal([](auto* c) { c->layers.clear(); }),
            "num_hidden_layers is 0; it must be between 1 and 1024");
  EXPECT_EQ(Refusal([](auto* c) { c->norm_eps = 0; }),
            "rms_norm_eps is 0; it must be a number above 0");
  EXPECT_EQ(Refusal([](auto* c) { c->attention_scale = std::numeric_limits<double>::infinity(); }),
            "the attention scale is inf; it must be a number above 0");
  EXPECT_EQ(Refusal([](auto* c) { c->final_logit_softcap = -30; }),
            "final_logit_softcapping is -30; it must be a number above 0");
}

TEST(ModelConfig, NamesTheLayer) {
  EXPECT_EQ(
      Refusal([](auto* c) { c->layers[1].rope_theta = std::numeric_limits<double>::quiet_NaN(); }),
      "layer 1: rope_theta is nan; it must be a number above 0");
  EXPECT_EQ(Refusal([](auto* c) {
              c->layers[0].rope_scaling = Scaling(RopeScaling::Kind::kLinear);
              c->layers[0].rope_scaling.factor = 0;
            }),
            "layer 0: rope_scaling.factor is 0; it must be a number above 0");
  EXPECT_EQ(Refusal([](auto* c) {
              c->layers[0].rope_scaling = Scaling(RopeScaling::Kind::kLlama3);
              c->layers[0].rope_scaling.low_freq_factor = 4;
            }),
            "layer 0: rope_scaling.high_freq_factor is 4; it must be above low_freq_factor, 4");
  EXPECT_EQ(Refusal([](auto* c) {
              c->layers[0].rope_scaling = Scaling(RopeScaling::Kind::kFactors);
              c->layers[0].rope_scaling.freq_factors = {1.0F};
            }),
            "layer 0: rope frequency factors: 1 of them; head_dim 64 needs 32");
}

}  // namespace
}  // namespace cleave

#include "convert/types.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <string>
#include <vector>

namespace culet::convert {
namespace {

using quant::TensorType;

// A model of 16 layers in BF16.
class Shapes {
 public:
  explicit Shapes(uint64_t width = 512, bool tied = false) {
    add("token_embd.weight", {width, 1000});
    if (!tied) add("output.weight", {width, 1000});
    add("output_norm.weight", {width}, TensorType::F32);
    for (int i = 0; i < 16; ++i) {
      const std::string layer = "blk." + std::to_string(i) + ".";
      for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up"}) {
        add(layer + name + ".weight", {width, 256});
      }
      add(layer + "ffn_down.weight", {256, width});
      add(layer + "attn_q.bias", {256}, TensorType::F32);
      add(layer + "attn_norm.weight", {width}, TensorType::F32);
    }
  }
  void add(std::string name, std::vector<uint64_t> dims, TensorType type = TensorType::BF16) {
    names_.push_back(std::move(name));
    dims_.push_back(std::move(dims));
    shapes_.push_back({names_.back(), type, dims_.back()});
  }

  Result<TypeChoice> choose(std::string_view type, std::vector<TensorTypeRule> rules = {}) const {
    return choose_types(shapes_, type, rules);
  }
  // The chosen type of a tensor.
  TensorType of(const Result<TypeChoice>& choice, std::string_view name) const {
    EXPECT_TRUE(choice) << choice.error().message;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      if (shapes_[i].name == name) return choice->types[i];
    }
    ADD_FAILURE() << "there is no " << name;
    return TensorType::F64;
  }

 private:
  std::deque<std::string> names_;
  std::deque<std::vector<uint64_t>> dims_;
  std::vector<TensorShape> shapes_;
};

TEST(Types, ATypeIsThatOfEveryMatrix) {
  const Shapes model;
  const auto choice = model.choose("Q8_0");
  EXPECT_EQ(model.of(choice, "token_embd.weight"), TensorType::Q8_0);
  EXPECT_EQ(model.of(choice, "output.weight"), TensorType::Q8_0);
  EXPECT_EQ(model.of(choice, "blk.3.ffn_down.weight"), TensorType::Q8_0);
  EXPECT_EQ(choice->file_type, 7u);
  EXPECT_TRUE(choice->notes.empty());
}

TEST(Types, VectorsRoutersAndConvolutionsStay) {
  Shapes model;
  model.add("blk.0.ffn_gate_inp.weight", {512, 8}, TensorType::F32);
  model.add("blk.0.shortconv.conv.weight", {3, 512}, TensorType::F32);
  model.add("blk.0.shortconv.in_proj.weight", {512, 1536});
  model.add("blk.0.odd.weight", {512, 1}, TensorType::F32);
  model.add("blk.0.ffn_down_exps.scale", {8, 2}, TensorType::F32);
  model.add("position_embd.weight", {512, 128}, TensorType::F32);
  model.add("blk.0.ffn_down_exps.weight", {256, 512, 8});
  const auto choice = model.choose("Q4_0");
  for (const char* name :
       {"blk.0.attn_norm.weight", "blk.0.attn_q.bias", "output_norm.weight",
        "blk.0.ffn_gate_inp.weight", "blk.0.shortconv.conv.weight", "blk.0.odd.weight",
        "blk.0.ffn_down_exps.scale", "position_embd.weight"}) {
    EXPECT_EQ(model.of(choice, name), TensorType::F32) << name;
  }
  EXPECT_EQ(model.of(choice, "blk.0.shortconv.in_proj.weight"), TensorType::Q4_0);
  EXPECT_EQ(model.of(choice, "blk.0.ffn_down_exps.weight"), TensorType::Q4_0);
}

TEST(Types, AMixGivesMoreBitsToSome) {
  const Shapes model;
  const auto choice = model.choose("Q4_K_M");
  EXPECT_EQ(choice->file_type, 15u);
  EXPECT_EQ(model.of(choice, "output.weight"), TensorType::Q6_K);
  EXPECT_EQ(model.of(choice, "token_embd.weight"), TensorType::Q4_K);
  std::string more;
  for (int i = 0; i < 16; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    EXPECT_EQ(model.of(choice, layer + "attn_q.weight"), TensorType::Q4_K);
    const TensorType down = model.of(choice, layer + "ffn_down.weight");
    EXPECT_EQ(model.of(choice, layer + "attn_v.weight"), down);
    more += down == TensorType::Q6_K ? '6' : '4';
  }
  EXPECT_EQ(more, "6644644644644666");
}

TEST(Types, LayersOfTheOtherMixes) {
  const Shapes model;
  const auto small = model.choose("Q4_K_S"), medium = model.choose("Q3_K_M");
  EXPECT_EQ(model.of(small, "blk.3.attn_v.weight"), TensorType::Q5_K);
  EXPECT_EQ(model.of(small, "blk.4.attn_v.weight"), TensorType::Q4_K);
  EXPECT_EQ(model.of(small, "blk.1.ffn_down.weight"), TensorType::Q5_K);
  EXPECT_EQ(model.of(small, "blk.2.ffn_down.weight"), TensorType::Q4_K);
  EXPECT_EQ(model.of(medium, "blk.0.ffn_down.weight"), TensorType::Q5_K);
  EXPECT_EQ(model.of(medium, "blk.1.ffn_down.weight"), TensorType::Q4_K);
  EXPECT_EQ(model.of(medium, "blk.1.attn_v.weight"), TensorType::Q5_K);
  EXPECT_EQ(model.of(medium, "blk.2.attn_v.weight"), TensorType::Q4_K);
  EXPECT_EQ(model.of(medium, "blk.2.attn_k.weight"), TensorType::Q3_K);
  EXPECT_EQ(model.of(medium, "blk.2.attn_output.weight"), TensorType::Q4_K);
}

TEST(Types, ATiedEmbeddingIsTheHead) {
  const Shapes model(512, true);
  EXPECT_EQ(model.of(model.choose("Q4_K_M"), "token_embd.weight"), TensorType::Q6_K);
  EXPECT_EQ(model.of(model.choose("Q4_0", {{"head", "Q8_0"}}), "token_embd.weight"),
            TensorType::Q8_0);
}

TEST(Types, TheLastRuleThatFitsDecides) {
  const Shapes model;
  const auto choice = model.choose(
      "Q4_K_M", {{"head", "Q8_0"}, {"blk.1*.attn_v.weight", "F16"}, {"blk.15.*.weight", "BF16"}});
  EXPECT_EQ(model.of(choice, "output.weight"), TensorType::Q8_0);
  EXPECT_EQ(model.of(choice, "blk.10.attn_v.weight"), TensorType::F16);
  EXPECT_EQ(model.of(choice, "blk.1.attn_v.weight"), TensorType::F16);
  EXPECT_EQ(model.of(choice, "blk.2.attn_v.weight"), TensorType::Q4_K);
  EXPECT_EQ(model.of(choice, "blk.15.attn_v.weight"), TensorType::BF16);
  EXPECT_EQ(model.of(choice, "blk.15.attn_norm.weight"), TensorType::BF16);
  EXPECT_EQ(model.of(choice, "blk.14.attn_norm.weight"), TensorType::F32);
}

// Verifies files.making-quantized-files.
TEST(Types, RowsThatDoNotDivideGetAnotherTypeAndANote) {
  Shapes model(480);
  model.add("blk.0.small.weight", {20, 512});
  const auto choice = model.choose("Q4_K_M");
  EXPECT_EQ(model.of(choice, "blk.7.attn_q.weight"), TensorType::Q5_0);
  EXPECT_EQ(model.of(choice, "output.weight"), TensorType::Q8_0);
  EXPECT_EQ(model.of(choice, "blk.0.ffn_down.weight"), TensorType::Q6_K);
  EXPECT_EQ(model.of(choice, "blk.0.small.weight"), TensorType::F16);
  bool found = false;
  for (const std::string& note : choice->notes) {
    found = found || note ==
                         "blk.*.attn_q.weight (16 tensors) gets Q5_0 instead of Q4_K: its rows of "
                         "480 values are no multiple of 256";
  }
  EXPECT_TRUE(found);
  const std::map<std::string, TensorType> others{{"Q6_K", TensorType::Q8_0},
                                                 {"Q5_K", TensorType::Q5_1},
                                                 {"Q3_K", TensorType::Q4_0},
                                                 {"Q2_K", TensorType::Q4_0},
                                                 {"IQ4_XS", TensorType::IQ4_NL}};
  for (const auto& [asked, used] : others) {
    EXPECT_EQ(model.of(model.choose(asked), "blk.0.attn_q.weight"), used) << asked;
  }
  EXPECT_TRUE(model.choose("F16")->notes.empty());
}

TEST(Types, WhatThereIsNotIsRefusedByName) {
  const Shapes model;
  const auto message = [&](std::string_view type, std::vector<TensorTypeRule> rules) {
    const auto choice = model.choose(type, std::move(rules));
    return choice ? "" : choice.error().message;
  };
  EXPECT_NE(message("Q4_K_XL", {}).find("'Q4_K_XL' is not a type; the types are F32,"),
            std::string::npos);
  EXPECT_NE(message("IQ2_XXS", {}).find("is not a type"), std::string::npos);
  EXPECT_NE(message("Q4_0", {{"head", "Q4_K_M"}}).find("'Q4_K_M' for the tensors 'head'"),
            std::string::npos);
  EXPECT_NE(message("Q4_0", {{"blk.16.*", "Q8_0"}}).find("no tensor is called 'blk.16.*'"),
            std::string::npos);
  EXPECT_NE(message("Q4_0", {{"tail", "Q8_0"}}).find("or a role: embd, head,"), std::string::npos);
  EXPECT_NE(message("Q4_0", {{"attn_qkv", "Q8_0"}}).find("no tensor with the role attn_qkv"),
            std::string::npos);
}

TEST(Types, Patterns) {
  EXPECT_TRUE(matches("", ""));
  EXPECT_TRUE(matches("", "**"));
  EXPECT_TRUE(matches("abc", "abc"));
  EXPECT_TRUE(matches("abc", "*c"));
  EXPECT_TRUE(matches("abcbc", "a*bc"));
  EXPECT_TRUE(matches("abc", "*a*b*c*"));
  EXPECT_FALSE(matches("abc", "ab"));
  EXPECT_FALSE(matches("abc", "b*"));
  EXPECT_FALSE(matches("abc", "a*d"));
  EXPECT_FALSE(matches("", "a"));
  // No input takes exponential time.
  EXPECT_FALSE(matches(std::string(5000, 'a'), "*a*a*a*a*a*a*a*a*a*a*b"));
}

}  // namespace
}  // namespace culet::convert

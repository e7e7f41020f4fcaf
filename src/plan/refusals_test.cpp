// Files that are nearly right. Whatever the family, a tensor that is missing, one too many, heads
// of another width and an unknown scaling of positions are refused, and the message names the
// culprit.
#include "plan/plan_test_support.h"

#include <cstdint>

namespace culet::plan::test {
namespace {

struct Decoder {
  const char* header;
  const char* arch;
  const char* matrix;            // of every layer
  const char* cut;               // what is cut into heads
  const char* narrow = nullptr;  // what narrower heads do not fit, if that is something else
};
constexpr Decoder kDecoders[] = {
    {"llama", "llama", "ffn_down", "attn_q"},
    {"llama3-rope", "llama", "ffn_down", "attn_q"},
    {"qwen2", "qwen2", "ffn_down", "attn_q"},
    {"qwen3", "qwen3", "ffn_down", "attn_q"},
    {"gemma", "gemma", "ffn_down", "attn_q"},
    {"gemma2", "gemma2", "post_ffw_norm", "attn_q"},
    {"gemma3", "gemma3", "post_ffw_norm", "attn_q"},
    {"gemma4-dense", "gemma4", "post_ffw_norm", "attn_q"},
    {"gemma4-e", "gemma4", "post_ffw_norm", "attn_q"},
    {"gemma3n", "gemma3n", "post_ffw_norm", "attn_q"},
    {"lfm2", "lfm2", "ffn_down", "attn_q"},
    {"olmo2", "olmo2", "attn_k_norm", "attn_q"},
    {"olmo3", "olmo2", "attn_k_norm", "attn_q"},
    {"granite", "granite", "ffn_down", "attn_q"},
    {"smollm3", "smollm3", "ffn_down", "attn_q"},
    {"phi3", "phi3", "ffn_down", "slice(qkv", "attn_output"},
    {"phi3-longrope", "phi3", "ffn_down", "slice(qkv", "rope_factors_long"},
    {"phi3-window", "phi3", "ffn_down", "slice(qkv", "attn_output"},
    {"glm4", "glm4", "post_ffw_norm", "attn_q"},
};

// The bytes of a header, with what the tests do to them. Counts stand at bytes 8 (tensors) and 16.
class Bytes {
 public:
  explicit Bytes(const std::string& header)
      : bytes_(read_text(data("golden/headers/" + header + ".gguf"))) {}

  void rename_tensor(const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    const size_t at = bytes_.find(length_of(from) + from);
    ASSERT_NE(at, std::string::npos) << from;
    bytes_.replace(at + 8, from.size(), to);
  }
  void add_vector(const std::string& name, uint64_t width) {
    bytes_ += length_of(name) + name + raw(uint32_t{1}) + raw(width) + raw(uint32_t{0}) +
              raw(uint64_t{1} << 30);
    add_to_count(8);
  }
  void set_number(const std::string& key, uint32_t value) {
    const std::string head = length_of(key) + key + raw(uint32_t{4});
    const size_t at = bytes_.find(head);
    if (at != std::string::npos) {
      bytes_.replace(at + head.size(), 4, raw(value));
    } else {
      insert(head + raw(value));
    }
  }
  void set_text(const std::string& key, const std::string& value) {
    const std::string head = length_of(key) + key + raw(uint32_t{8});
    const size_t at = bytes_.find(head);
    if (at != std::string::npos) {  // a longer value would move what follows: another key takes it
      bytes_.replace(at + 8, key.size(), std::string(key.size(), 'x'));
    }
    insert(head + length_of(value) + value);
  }
  ModelPtr model() const { return parse_model(bytes_, "changed.gguf"); }

 private:
  template <class T>
  static std::string raw(T v) {
    std::string out(sizeof(T), '\0');
    std::memcpy(out.data(), &v, sizeof(T));
    return out;
  }
  static std::string length_of(const std::string& s) { return raw(uint64_t{s.size()}); }
  void insert(const std::string& entry) {
    bytes_.insert(24, entry);
    add_to_count(16);
  }
  void add_to_count(size_t at) {
    uint64_t count = 0;
    std::memcpy(&count, bytes_.data() + at, sizeof(count));
    bytes_.replace(at, 8, raw(count + 1));
  }
  std::string bytes_;
};

std::string refusal(const Bytes& bytes, const Decoder& d) {
  const ModelPtr model = bytes.model();
  auto compiled = compile_text(builtin(), arch_file(d.arch), model->file, {});
  EXPECT_FALSE(compiled) << d.header << " is accepted";
  return compiled ? "" : compiled.error().message;
}

void expect_named(const std::string& message, const std::string& what, const Decoder& d) {
  EXPECT_NE(message.find(what), std::string::npos)
      << d.header << ": the message does not name " << what << ": " << message;
}

TEST(Refusals, EveryUntouchedHeaderIsAccepted) {
  for (const Decoder& d : kDecoders) {
    auto c = compile_text(builtin(), arch_file(d.arch), Bytes(d.header).model()->file, {});
    EXPECT_TRUE(c) << d.header << ": " << c.error().message;
  }
}

// Requirement language.nearly-right-files "nearly right files": of every decoder family a missing
// tensor, one too many, heads of another width and an unknown scaling of positions are refused, and
// the message names the culprit; so is each of the five published shapes of Gemma 4 in full size
TEST(Refusals, AMissingTensor) {
  for (const Decoder& d : kDecoders) {
    Bytes bytes(d.header);
    const std::string name = std::string("blk.1.") + d.matrix + ".weight";
    bytes.rename_tensor(name, std::string(name).replace(6, 1, "X"));
    expect_named(refusal(bytes, d), "tensor " + name + " is missing", d);
  }
}

// Verifies language.nearly-right-files.
TEST(Refusals, ATensorTooMany) {
  for (const Decoder& d : kDecoders) {
    Bytes bytes(d.header);
    bytes.add_vector("blk.1.attn_surprise.weight", 8);
    expect_named(refusal(bytes, d), "unused tensor blk.1.attn_surprise.weight", d);
  }
}

// Verifies language.nearly-right-files.
TEST(Refusals, HeadsOfAnotherWidth) {
  for (const Decoder& d : kDecoders) {
    for (const uint32_t width : {40u, 8u}) {
      Bytes bytes(d.header);
      bytes.set_number(std::string(d.arch) + ".attention.key_length", width);
      bytes.set_number(std::string(d.arch) + ".rope.dimension_count", 8);
      const std::string message = refusal(bytes, d);
      expect_named(message, width == 8 && d.narrow ? d.narrow : d.cut, d);
    }
  }
}

// Verifies language.nearly-right-files.
TEST(Refusals, AnUnknownScalingOfPositions) {
  for (const Decoder& d : kDecoders) {
    Bytes bytes(d.header);
    bytes.set_text(std::string(d.arch) + ".rope.scaling.type", "spiral");
    expect_named(refusal(bytes, d), "rope.scaling.type", d);
  }
}

// Verifies language.nearly-right-files.
TEST(Refusals, WhatAFamilyDoesNotDo) {
  const Decoder granite{"granite", "granite", "", ""}, phi3{"phi3", "phi3", "", ""};
  Bytes experts("granite");
  experts.set_number("granite.expert_count", 8);
  expect_named(refusal(experts, granite), "granite with experts is not supported", granite);
  const Decoder gemma3n{"gemma3n", "gemma3n", "", ""};
  for (const char* key : {"altup.num_inputs", "altup.active_idx"}) {
    Bytes streams("gemma3n");
    streams.set_number(std::string("gemma3n.") + key, 2);
    expect_named(refusal(streams, gemma3n), std::string(key) + " must be", gemma3n);
  }
  Bytes longer("phi3");  // the type that needs two lists of factors, without the lists
  longer.set_text("phi3.rope.scaling.type", "longrope");
  expect_named(refusal(longer, phi3), "rope.scaling.type", phi3);
}

TEST(Refusals, LongropeWithItsFactorsIsAccepted) {
  Bytes bytes("phi3-longrope");
  bytes.set_text("phi3.rope.scaling.type", "longrope");
  auto c = compile_text(builtin(), arch_file("phi3"), bytes.model()->file, {});
  EXPECT_TRUE(c) << c.error().message;
}

}  // namespace
}  // namespace culet::plan::test

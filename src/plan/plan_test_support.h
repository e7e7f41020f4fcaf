// What the tests of this layer share: fixtures, headers made on the spot, one-call compiling, and
// checks that every plan must pass.
#pragma once

#include "format/gguf.h"
#include "plan/compile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace culet::plan::test {

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}
inline std::string data(const std::string& path) { return CULET_TEST_DATA "/" + path; }

// A header whose bytes live as long as it does.
struct Model {
  std::string bytes;
  format::GgufFile file;
};
using ModelPtr = std::unique_ptr<Model>;

inline ModelPtr parse_model(std::string bytes, const std::string& name) {
  auto m = std::make_unique<Model>();
  m->bytes = std::move(bytes);
  auto file = format::GgufFile::parse(std::as_bytes(std::span(m->bytes)), name, true);
  EXPECT_TRUE(file) << file.error().message;
  if (file) m->file = std::move(*file);
  return m;
}
inline ModelPtr fixture(const std::string& name) {
  return parse_model(read_text(data("golden/headers/" + name + ".gguf")), name + ".gguf");
}

// Writes GGUF headers: metadata and tensors of float32.
class Header {
 public:
  explicit Header(const std::string& architecture) { text("general.architecture", architecture); }
  Header& text(const std::string& key, const std::string& v) {
    entry(key, 8);
    put_string(&kv_, v);
    return *this;
  }
  Header& number(const std::string& key, uint32_t v) {
    entry(key, 4);
    put(&kv_, v);
    return *this;
  }
  Header& real(const std::string& key, float v) {
    entry(key, 6);
    put(&kv_, v);
    return *this;
  }
  Header& flag(const std::string& key, bool v) {
    entry(key, 7);
    put(&kv_, static_cast<uint8_t>(v));
    return *this;
  }
  Header& numbers(const std::string& key, const std::vector<uint32_t>& v) {
    entry(key, 9);
    put(&kv_, uint32_t{4});
    put(&kv_, uint64_t{v.size()});
    for (uint32_t n : v) put(&kv_, n);
    return *this;
  }
  Header& flags(const std::string& key, const std::vector<bool>& v) {
    entry(key, 9);
    put(&kv_, uint32_t{7});
    put(&kv_, uint64_t{v.size()});
    for (const bool b : v) put(&kv_, static_cast<uint8_t>(b));
    return *this;
  }
  Header& tensor(const std::string& name, std::vector<uint64_t> dims) {
    put_string(&tensors_, name);
    put(&tensors_, static_cast<uint32_t>(dims.size()));
    uint64_t bytes = 4;
    for (uint64_t d : dims) put(&tensors_, d), bytes *= d;
    put(&tensors_, uint32_t{0});
    put(&tensors_, offset_);
    offset_ += (bytes + 31) / 32 * 32;
    ++n_tensors_;
    return *this;
  }
  ModelPtr model() const {
    std::string out = "GGUF";
    put(&out, uint32_t{3});
    put(&out, n_tensors_);
    put(&out, n_kv_);
    return parse_model(out + kv_ + tensors_, "made.gguf");
  }

 private:
  template <class T>
  static void put(std::string* out, T v) {
    char raw[sizeof(T)];
    std::memcpy(raw, &v, sizeof(T));
    out->append(raw, sizeof(T));
  }
  static void put_string(std::string* out, const std::string& s) {
    put(out, uint64_t{s.size()});
    *out += s;
  }
  void entry(const std::string& key, uint32_t type) {
    put_string(&kv_, key);
    put(&kv_, type);
    ++n_kv_;
  }
  std::string kv_, tensors_;
  uint64_t n_kv_ = 0, n_tensors_ = 0, offset_ = 0;
};

// A model of one layer with plain tensors; what the tests of the language compile against.
inline Header toy_header() {
  Header h("toy");
  h.number("toy.block_count", 2).number("toy.embedding_length", 8).number("toy.heads", 2);
  h.real("toy.eps", 1e-5f).text("toy.word", "linear").flag("toy.yes", true);
  h.numbers("toy.list", {3, 5});
  h.tensor("token_embd.weight", {8, 16}).tensor("output_norm.weight", {8});
  for (const char* l : {"blk.0.", "blk.1."})
    h.tensor(l + std::string("attn_q.weight"), {8, 8}).tensor(l + std::string("norm.weight"), {8});
  return h;
}

inline const ArchLibrary& builtin() {
  static const ArchLibrary kLibrary = *ArchLibrary::open("");
  return kLibrary;
}

inline Result<Compiled> compile_text_of(const std::string& text, const format::GgufFile& model,
                                        CompileOptions options = {.check_only = true}) {
  return compile_text(builtin(), ArchText{"test", text, "test.arch"}, model, options);
}

inline ArchText arch_file(const std::string& name) {
  const ArchText* file = builtin().by_file_name(name);
  EXPECT_NE(file, nullptr) << name;
  return file ? *file : ArchText{};
}

inline std::string replace_line(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "no such text: " << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

inline std::vector<const Op*> ops_of(const Plan& plan, OpKind kind, int32_t layer = -2) {
  std::vector<const Op*> out;
  for (const Op& op : plan.ops)
    if (op.kind == kind && (layer == -2 || op.layer == layer)) out.push_back(&op);
  return out;
}
inline int count(const Plan& plan, OpKind kind) {
  return static_cast<int>(ops_of(plan, kind).size());
}
inline const Value& value(const Plan& plan, ValueId v) {
  return plan.values[static_cast<size_t>(v)];
}

// Every promise of a finished plan, worked out again from the ops alone: operands exist before they
// are read, layers are contiguous, lines point into the text, and no two values that are alive at
// the same time share a byte of the arena.
inline void check_plan(const Plan& plan) {
  const size_t forever = plan.ops.size();
  std::vector<std::pair<size_t, size_t>> life(plan.values.size(), {forever + 1, 0});
  for (size_t k = 0; k < plan.ops.size(); ++k) {
    const Op& op = plan.ops[k];
    for (ValueId v : op.in) {
      ASSERT_LE(life[static_cast<size_t>(v)].first, k) << "op " << k << " reads %" << v;
      life[static_cast<size_t>(v)].second = k;
    }
    for (ValueId v : op.out) {
      ASSERT_EQ(life[static_cast<size_t>(v)].first, forever + 1) << "%" << v << " is made twice";
      life[static_cast<size_t>(v)] = {k, k};
    }
    ASSERT_GT(op.line, 0);
    ASSERT_LT(static_cast<size_t>(op.line), plan.source.size());
    const bool inside = op.layer != kNone;
    if (inside) {
      const LayerRange& r = plan.layers[static_cast<size_t>(op.layer)];
      ASSERT_TRUE(static_cast<int32_t>(k) >= r.first &&
                  static_cast<int32_t>(k) < r.first + r.count);
    }
    ASSERT_FALSE(inside && static_cast<int32_t>(k) < plan.prologue);
    if (op.kind == OpKind::select_rows || op.kind == OpKind::pool) continue;
    for (ValueId v : op.out) {
      for (ValueId i : op.in) ASSERT_EQ(value(plan, v).rows, value(plan, i).rows) << "op " << k;
    }
  }
  int32_t next = plan.prologue;
  for (const LayerRange& r : plan.layers) {
    ASSERT_EQ(r.first, next);
    next += r.count;
  }
  for (const Output& o : plan.outputs) life[static_cast<size_t>(o.value)].second = forever;
  for (size_t a = 0; a < plan.values.size(); ++a) {
    if (life[a].first > forever) continue;
    const Value& x = plan.values[a];
    const bool wanted = x.rows == TokenSet::kOutputs;
    ASSERT_EQ(x.offset % 64, 0);
    ASSERT_GE(x.offset, 0);
    ASSERT_GE(x.row_bytes, x.form == Form::kF32 ? x.width * 4 : x.width);
    ASSERT_LE(x.offset + x.row_bytes, wanted ? plan.arena_output_bytes : plan.arena_token_bytes);
    for (size_t b = a + 1; b < plan.values.size(); ++b) {
      if (life[b].first > forever || plan.values[b].rows != x.rows) continue;
      if (life[a].second < life[b].first || life[b].second < life[a].first) continue;
      const Value& y = plan.values[b];
      ASSERT_TRUE(x.offset + x.row_bytes <= y.offset || y.offset + y.row_bytes <= x.offset)
          << "%" << a << " and %" << b << " share bytes";
    }
  }
}

}  // namespace culet::plan::test

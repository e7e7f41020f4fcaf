// For the tests of this folder: plans and model files made by hand, in memory.
#pragma once

#include "backend/executor.h"
#include "base/allocation_counter.h"
#include "base/check.h"
#include "base/thread_pool.h"
#include "kernels/test_data.h"
#include "plan/plan.h"
#include "quant/tensor_type.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace culet::backend::test {

using plan::Attributes;
using plan::Form;
using plan::OpKind;
using plan::TensorId;
using plan::TokenSet;
using plan::ValueId;
using quant::TensorType;

using base::allocation_count;

inline kernels::Kernels kernel_table(const char* isa = nullptr) {
  kernels::Kernels table{};
  CULET_CHECK(kernels::select_kernels(isa, &table) == nullptr);
  return table;
}

// n ids below kSomeTokens, which the tables of the tests have rows for.
constexpr int32_t kSomeTokens = 40;
inline std::vector<int32_t> some_tokens(size_t n, uint32_t seed = 3) {
  std::mt19937 random(seed);
  std::vector<int32_t> tokens(n);
  for (int32_t& t : tokens) t = static_cast<int32_t>(random() % kSomeTokens);
  return tokens;
}

inline void expect_bits(const std::vector<float>& got, const std::vector<float>& want,
                        const std::string& what) {
  EXPECT_EQ(kernels::test::first_difference(got, want), want.size()) << what;
}

// Tensors and ops in the order in which they are added; finish() before use. Every value has a
// place of its own in the arena.
class TestModel {
 public:
  explicit TestModel(uint32_t seed = 1) : rng(seed) { plan.architecture = "test"; }

  TensorId matrix(TensorType type, int64_t n, int64_t k) {
    return add(type, {static_cast<uint64_t>(k), static_cast<uint64_t>(n)},
               kernels::test::random_tensor(type, n, k, rng));
  }
  TensorId experts(TensorType type, int64_t count, int64_t n, int64_t k) {
    return add(type,
               {static_cast<uint64_t>(k), static_cast<uint64_t>(n), static_cast<uint64_t>(count)},
               kernels::test::random_tensor(type, count * n, k, rng));
  }
  TensorId vector(const std::vector<float>& values) {
    std::vector<uint8_t> bytes(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return add(TensorType::F32, {values.size()}, std::move(bytes));
  }
  // Rows of `width` float32.
  TensorId table(const std::vector<float>& values, int64_t width) {
    std::vector<uint8_t> bytes(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return add(TensorType::F32,
               {static_cast<uint64_t>(width), values.size() / static_cast<uint64_t>(width)},
               std::move(bytes));
  }
  TensorId vector(int64_t n) {
    return vector(kernels::test::random_floats(static_cast<size_t>(n), rng));
  }

  ValueId value(std::vector<int32_t> dims, TokenSet rows = TokenSet::kAll, Form form = Form::kF32) {
    plan::Value v;
    v.name = "v" + std::to_string(plan.values.size());
    v.rank = static_cast<int32_t>(dims.size());
    v.width = 1;
    for (size_t d = 0; d < dims.size(); ++d) v.dims[d] = dims[d], v.width *= dims[d];
    v.form = form;
    v.rows = rows;
    plan.values.push_back(v);
    return static_cast<ValueId>(plan.values.size()) - 1;
  }
  void op(OpKind kind, std::vector<ValueId> in, std::vector<ValueId> out,
          std::vector<TensorId> weights = {}, Attributes attr = {}) {
    if (attr.get_if<plan::NoAttributes>() != nullptr) attr = plan::attributes_of(kind);
    CULET_CHECK(attr.same_kind(plan::attributes_of(kind)));
    plan.ops.push_back({kind, layer, 1, std::move(in), std::move(out), std::move(weights), attr});
  }
  int32_t cache(plan::CacheSpec spec) {
    plan.caches.push_back(spec);
    return static_cast<int32_t>(plan.caches.size()) - 1;
  }

  void finish() {
    constexpr auto round64 = [](int64_t n) { return (n + 63) / 64 * 64; };
    for (plan::Value& v : plan.values) {
      v.row_bytes = v.form == Form::kF32 ? round64(int64_t{v.width} * 4)
                                         : plan::quant_layout(v.width).row_bytes();
      int64_t& end = v.rows == TokenSet::kAll ? plan.arena_token_bytes : plan.arena_output_bytes;
      v.offset = std::exchange(end, end + v.row_bytes);
    }
    plan.source = {"", "a line of text"};
    plan.n_layers = layer + 1;
    plan.layers.assign(static_cast<size_t>(plan.n_layers), {0, 0});
    bool inside = false;
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      if (plan.ops[i].layer == plan::kNone) {
        if (!inside) plan.prologue = static_cast<int32_t>(i) + 1;
        continue;
      }
      inside = true;
      plan::LayerRange& range = plan.layers[static_cast<size_t>(plan.ops[i].layer)];
      if (range.count++ == 0) range.first = static_cast<int32_t>(i);
    }
    write_file();
  }

  std::vector<float> dequantized(TensorId id) const {
    const format::TensorInfo& t = file.tensors()[static_cast<size_t>(id)];
    std::vector<float> out(t.elements());
    quant::dequantize_fn(t.type)(
        t.data, static_cast<int64_t>(t.elements()) / quant::type_info(t.type).block, out.data());
    return out;
  }

  // After finish(): the same model read from a mapping of this path.
  void map(const std::string& path) {
    std::ofstream(path, std::ios::binary)
        .write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
    auto opened = format::GgufFile::open(path);
    CULET_CHECK(opened.has_value());
    file = std::move(*opened);
  }

  plan::Plan plan;
  format::GgufFile file;
  std::mt19937 rng;
  int32_t layer = plan::kNone;  // of the ops added next

 private:
  struct Tensor {
    TensorType type;
    std::vector<uint64_t> dims;
    std::vector<uint8_t> bytes;
  };

  TensorId add(TensorType type, std::vector<uint64_t> dims, std::vector<uint8_t> bytes) {
    tensors_.push_back({type, std::move(dims), std::move(bytes)});
    return static_cast<TensorId>(tensors_.size()) - 1;
  }
  template <class T>
  void put(T value) {
    bytes_.insert(bytes_.end(), reinterpret_cast<const char*>(&value),
                  reinterpret_cast<const char*>(&value) + sizeof value);
  }
  void put(const std::string& text) {
    put(uint64_t{text.size()});
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  void align() { bytes_.resize((bytes_.size() + 31) / 32 * 32); }

  void write_file() {
    bytes_.assign({'G', 'G', 'U', 'F'});
    put(uint32_t{3});
    put(uint64_t{tensors_.size()});
    put(uint64_t{1});
    put(std::string("general.architecture"));
    put(uint32_t{8});
    put(std::string("test"));
    uint64_t offset = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const Tensor& t = tensors_[i];
      put("t" + std::to_string(i));
      put(static_cast<uint32_t>(t.dims.size()));
      for (uint64_t d : t.dims) put(d);
      put(static_cast<uint32_t>(t.type));
      put(offset);
      offset = (offset + t.bytes.size() + 31) / 32 * 32;
    }
    align();
    for (const Tensor& t : tensors_) {
      bytes_.insert(bytes_.end(), t.bytes.begin(), t.bytes.end());
      align();
    }
    auto parsed = format::GgufFile::parse(std::as_bytes(std::span(bytes_)), "test");
    CULET_CHECK(parsed.has_value());
    file = std::move(*parsed);
  }

  std::vector<Tensor> tensors_;
  std::vector<char> bytes_;
};

// A model prepared for one number of threads.
struct Prepared {
  Prepared(const TestModel& model, int threads, Limits limits = {}, const char* isa = nullptr,
           bool repack = true)
      : pool(threads), kernels(kernel_table(isa)) {
    PrepareOptions options;
    options.limits = limits;
    options.repack = repack;
    auto made = Executor::prepare(model.plan, model.file, kernels, pool, options);
    CULET_CHECK(made.has_value());
    executor = std::move(*made);
    workspace = executor->make_workspace();
  }
  std::unique_ptr<cache::CacheSet> caches(const TestModel& model,
                                          cache::CacheOptions options = {}) const {
    auto made = cache::CacheSet::make(model.plan, options);
    CULET_CHECK(made.has_value());
    return std::move(*made);
  }
  // Runs `tokens` in passes of `pass` rows; the output rows of all of them.
  std::vector<float> run(cache::CacheSet* set, const std::vector<int32_t>& tokens, size_t pass,
                         std::string_view output = "y") {
    std::vector<float> all;
    for (size_t i = 0; i < tokens.size(); i += pass) {
      const size_t n = std::min(pass, tokens.size() - i);
      std::vector<int32_t> wanted(n);
      for (size_t w = 0; w < n; ++w) wanted[w] = static_cast<int32_t>(w);
      const SequenceChunk sequence{set, set ? set->length() : static_cast<int64_t>(i),
                                   std::span(tokens).subspan(i, n), wanted};
      CULET_CHECK(executor->run(*workspace, {&sequence, 1}).has_value());
      const auto rows = executor->output(*workspace, output);
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }

  base::ThreadPool pool;
  kernels::Kernels kernels;
  std::unique_ptr<Executor> executor;
  WorkspacePtr workspace;
};

}  // namespace culet::backend::test

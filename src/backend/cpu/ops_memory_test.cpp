// short_conv against its definition, to the bit: over whole sequences, cut into passes of any size,
// in batches, on every instruction set; and the rows its state keeps.
#include "backend/cpu/test_model.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace culet::backend::test {
namespace {

// y = short_conv(short_conv(embed(token))): two layers, so that the second one's state holds rows
// that depend on the first one's.
struct ConvModel {
  ConvModel(int32_t n_taps, int32_t n_width) : taps(n_taps), width(n_width) {
    table = model.matrix(TensorType::F32, kSomeTokens, width);
    ValueId x = model.value({width});
    model.op(OpKind::embed, {}, {x}, {table});
    for (int32_t layer = 0; layer < 2; ++layer) {
      model.layer = layer;
      const ValueId y = model.value({width});
      weights[layer] = model.matrix(TensorType::F32, width, taps);  // {taps, width}
      const plan::ShortConvAttributes attr{.state = layer};
      model.plan.states.push_back({"past", layer, taps - 1, width});
      model.op(OpKind::short_conv, {x}, {y}, {weights[layer]}, attr);
      x = y;
    }
    const ValueId wanted = model.value({width}, TokenSet::kOutputs);
    model.op(OpKind::select_rows, {x}, {wanted});
    model.plan.outputs.push_back({"y", wanted});
    model.finish();
  }

  std::vector<float> convolved(const std::vector<float>& x, int32_t layer) const {
    const std::vector<float> w = model.dequantized(weights[layer]);
    std::vector<float> y(x.size());
    const auto n = static_cast<int64_t>(x.size()) / width;
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        float sum = 0;
        for (int64_t j = 0; j < taps; ++j) {
          const int64_t t = r - (taps - 1) + j;
          const float v = t < 0 ? 0 : x[static_cast<size_t>(t * width + c)];
          sum = std::fma(w[static_cast<size_t>(c * taps + j)], v, sum);
        }
        y[static_cast<size_t>(r * width + c)] = sum;
      }
    }
    return y;
  }
  std::vector<float> rows(const std::vector<int32_t>& tokens) const {
    const std::vector<float> all = model.dequantized(table);
    std::vector<float> x;
    for (const int32_t t : tokens) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(t) * width;
      x.insert(x.end(), first, first + width);
    }
    return x;
  }
  std::vector<float> expected(const std::vector<int32_t>& tokens) const {
    return convolved(convolved(rows(tokens), 0), 1);
  }

  int32_t taps, width;
  TestModel model;
  TensorId table = 0, weights[2] = {};
};

TEST(ShortConv, IsItsDefinitionHoweverItIsCut) {
  const std::vector<int32_t> tokens = some_tokens(150);
  constexpr int32_t kShapes[][2] = {{2, 5}, {3, 64}, {4, 37}, {9, 130}};
  for (const auto [taps, width] : kShapes) {
    const ConvModel m(taps, width);
    const std::vector<float> want = m.expected(tokens);
    for (const int threads : {1, 2, 4}) {
      Prepared p(m.model, threads, {256, 256});
      for (const size_t pass : {150, 67, 8, 2, 1}) {
        const auto caches = p.caches(m.model);
        expect_bits(p.run(caches.get(), tokens, pass), want,
                    std::to_string(taps) + " taps, " + std::to_string(threads) +
                        " threads, passes of " + std::to_string(pass));
      }
    }
  }
}

TEST(ShortConv, EveryInstructionSetGivesTheSameBits) {
  const ConvModel m(3, 96);
  const std::vector<int32_t> tokens = some_tokens(40);
  for (const kernels::IsaLevel* level = kernels::isa_levels(); level->name != nullptr; ++level) {
    if (!level->usable) continue;
    Prepared p(m.model, 2, {256, 256}, level->name);
    const auto caches = p.caches(m.model);
    expect_bits(p.run(caches.get(), tokens, 13), m.expected(tokens), level->name);
  }
}

TEST(ShortConv, TheStateIsTheLastInputRows) {
  const ConvModel m(4, 16);
  Prepared p(m.model, 1);
  const auto caches = p.caches(m.model);
  const auto state = [&] {
    EXPECT_TRUE(caches->reserve(0));  // a state is there from the first reserve() on
    const float* s = caches->state(0).current();
    return std::vector<float>(s, s + 3 * 16);
  };
  EXPECT_EQ(state(), std::vector<float>(48, 0));
  const std::vector<int32_t> tokens = some_tokens(9);
  size_t seen = 0;
  for (const size_t pass : {2, 1, 5, 1}) {  // shorter and longer than the state
    p.run(caches.get(),
          {tokens.begin() + static_cast<std::ptrdiff_t>(seen),
           tokens.begin() + static_cast<std::ptrdiff_t>(seen + pass)},
          pass);
    seen += pass;
    std::vector<float> x(48, 0);
    const std::vector<float> fed =
        m.rows({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(seen)});
    x.insert(x.end(), fed.begin(), fed.end());
    expect_bits(state(), {x.end() - 48, x.end()}, "after " + std::to_string(seen));
  }
  caches->clear();
  EXPECT_EQ(state(), std::vector<float>(48, 0));
  expect_bits(p.run(caches.get(), tokens, 9), m.expected(tokens), "after clear");
}

TEST(ShortConv, SessionsInOneBatchAreAsAlone) {
  const ConvModel m(3, 64);
  Prepared p(m.model, 2, {256, 256});
  const std::vector<int32_t> tokens[] = {some_tokens(60, 1), some_tokens(35, 2),
                                         some_tokens(41, 3)};
  std::unique_ptr<cache::CacheSet> sets[] = {p.caches(m.model), p.caches(m.model),
                                             p.caches(m.model)};
  std::vector<float> got[3];
  std::vector<int32_t> all(60);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  for (const auto& sizes : {std::array<size_t, 3>{30, 1, 40}, {29, 34, 0}, {1, 0, 1}}) {
    std::vector<SequenceChunk> batch;
    for (size_t i = 0; i < 3; ++i) {
      const auto start = sets[i]->length();
      batch.push_back({sets[i].get(), start,
                       std::span(tokens[i]).subspan(static_cast<size_t>(start), sizes[i]),
                       std::span(all).first(sizes[i])});
    }
    ASSERT_TRUE(p.executor->run(*p.workspace, batch));
    auto rows = p.executor->output(*p.workspace, "y");
    for (size_t i = 0; i < 3; ++i) {
      const auto part = rows.first(sizes[i] * 64);
      got[i].insert(got[i].end(), part.begin(), part.end());
      rows = rows.subspan(sizes[i] * 64);
    }
  }
  for (size_t i = 0; i < 3; ++i)
    expect_bits(got[i], m.expected(tokens[i]), "session " + std::to_string(i));
}

TEST(ShortConv, AFailedPassLeavesTheState) {
  const ConvModel m(3, 16);
  Prepared p(m.model, 1);
  const auto caches = p.caches(m.model);
  const std::vector<int32_t> tokens = some_tokens(20);
  const std::vector<float> first = p.run(caches.get(), {tokens.begin(), tokens.begin() + 7}, 7);
  const std::vector<int32_t> strange = {1, kSomeTokens};
  const SequenceChunk s{caches.get(), caches->length(), strange, {}};
  ASSERT_FALSE(p.executor->run(*p.workspace, {&s, 1}));
  std::vector<float> all = first;
  const std::vector<float> rest = p.run(caches.get(), {tokens.begin() + 7, tokens.end()}, 5);
  all.insert(all.end(), rest.begin(), rest.end());
  expect_bits(all, m.expected(tokens), "after a refused pass");
}

}  // namespace
}  // namespace culet::backend::test

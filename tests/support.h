// What the tests of the whole engine share: reference files, models, rows of logits.
#pragma once

#include "culet/culet.h"
#include "format/gguf.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace culet::test {

std::string golden(const std::string& path);        // tests/golden/PATH
std::string arch_folder(const std::string& name);   // tests/arch/NAME
nlohmann::json read_json(const std::string& path);  // throws when it is not there
std::vector<nlohmann::ordered_json> read_json_lines(const std::string& path);

// Throws with the error's message, so that a test that needs the model fails with it.
std::shared_ptr<const Model> load(const std::string& path, const ModelOptions& options = {});
std::unique_ptr<Session> session(std::shared_ptr<const Model> model, KvType kv = KvType::kF16);

// Writes a copy of a model file with one more metadata array of int32.
void add_metadata(const std::string& source, const std::string& target, const std::string& key,
                  const std::vector<int32_t>& values);

// Writes a copy of a model file with every tensor's data as `convert` gives it.
struct TensorBytes {
  uint32_t type;  // as in the file
  std::string bytes;
};
TensorBytes unchanged(const format::TensorInfo& tensor);
void rewrite_tensors(const std::string& source, const std::string& target,
                     const std::function<TensorBytes(const format::TensorInfo&)>& convert);

using Rows = std::vector<std::vector<float>>;  // [position][vocabulary]
// Appends in the given chunks (empty: all at once) and collects the logits of every token.
Rows append_rows(Session& session, std::span<const Token> tokens,
                 std::span<const int64_t> chunks = {});
Rows rows_of(const std::string& path, const ModelOptions& options, KvType kv,
             std::span<const Token> tokens);

// Ids from 3 to 502, the same for the same seed.
std::vector<Token> tokens_of(size_t count, unsigned seed);

Token best(std::span<const float> logits);  // the lowest id on ties
double nll(const Model& model, std::span<const float> logits, Token id);
double largest_difference(std::span<const float> a, const nlohmann::json& b);
// Empty when every bit is equal, else the first position and id that differ.
std::string first_difference(const Rows& a, const Rows& b);
std::vector<std::string> usable_sets();  // instruction sets of this CPU
void expect_ok(const Result<void>& result);
uint64_t held_bytes(const Session& session);  // its own, and what it shares
bool small_tests();  // asked for with CULET_TEST_SIZE: where every instruction costs many

// What GoogleTest calls a test that has a name as its parameter: letters, digits and _.
std::string test_name(const testing::TestParamInfo<const char*>& info);

}  // namespace culet::test

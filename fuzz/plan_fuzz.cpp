// Any architecture text on any header of tests/golden/headers, which may be damaged too: refused
// with one printable line, or a plan that keeps its promises.
//
// Input: a letter that chooses the header ('a' the first of kHeaders), a character of options
// (bits of c - '0': 1 unfused, 2 precise, 4 with a target, 8 a context of 64 tokens), a digit that
// says how many bytes of the header are replaced (at most 7; three bytes each: low and high byte of
// the place, then the new byte); the rest is the text, or "=" for the built-in file.
// verify() inside compile checks the plan; check_plan() works it out again from the ops alone.
#include "format/gguf.h"
#include "plan/compile.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace culet;
using plan::Op;
using plan::Plan;
using plan::Value;

constexpr const char* kHeaders[] = {"bert",
                                    "gemma-embedding",
                                    "gemma3-linear",
                                    "gemma3-q8_0",
                                    "gemma3",
                                    "gemma3n",
                                    "gemma4-assistant",
                                    "gemma4-dense",
                                    "gemma4-e",
                                    "gemma4-e-q8_0",
                                    "gemma4-moe",
                                    "glm4",
                                    "lfm2",
                                    "llama-q8_0",
                                    "llama-quant-q8_0",
                                    "llama",
                                    "llama3-rope",
                                    "modernbert",
                                    "phi3",
                                    "phi3-longrope",
                                    "qwen2-q8_0",
                                    "qwen2",
                                    "qwen3",
                                    "qwen3moe",
                                    "mixtral",
                                    "gemma",
                                    "gemma2",
                                    "granite",
                                    "olmo2",
                                    "olmo3",
                                    "phi3-window",
                                    "smollm3"};
constexpr size_t kTarget = 3;  // gemma3-q8_0: of a family with a built-in file
constexpr size_t kHead = 3, kPatch = 3;
constexpr size_t kOpsToExplain = 2000;  // printing larger plans is slow and no different

void require(bool holds) {
  if (!holds) std::abort();
}

struct Header {
  explicit Header(const char* name) {
    std::ifstream in(std::string(CULET_TEST_DATA "/golden/headers/") + name + ".gguf",
                     std::ios::binary);
    require(in.good());
    bytes.assign(std::istreambuf_iterator<char>(in), {});
    file = *format::GgufFile::parse(std::as_bytes(std::span(bytes)), name, true);
  }
  std::string bytes;
  format::GgufFile file;
};

const std::vector<std::unique_ptr<Header>>& headers() {
  static const auto all = [] {
    std::vector<std::unique_ptr<Header>> made;
    for (const char* name : kHeaders) made.push_back(std::make_unique<Header>(name));
    return made;
  }();
  return all;
}

const plan::ArchLibrary& library() {
  static const plan::ArchLibrary built_in = *plan::ArchLibrary::open("");
  return built_in;
}

void check_error(const std::string& message) {
  require(!message.empty());
  for (const char c : message) require(static_cast<unsigned char>(c) >= 32);
}

// The bytes of the arena that are taken, by row set: where -> end, with the value's name.
using Taken = std::map<int64_t, int64_t>;

void take(Taken* taken, int64_t end_of_arena, const Value& v) {
  require(v.offset >= 0 && v.offset % 64 == 0 && v.row_bytes > 0);
  require(v.offset + v.row_bytes <= end_of_arena);
  const int64_t numbers = v.width;
  require(v.row_bytes >= (v.form == plan::Form::kF32 ? 4 * numbers : numbers));
  const auto after = taken->lower_bound(v.offset);
  require(after == taken->end() || v.offset + v.row_bytes <= after->first);
  require(after == taken->begin() || std::prev(after)->second <= v.offset);
  taken->emplace(v.offset, v.offset + v.row_bytes);
}

// Values live from the op that makes them to the last that reads them; two alive share no byte.
void check_arena(const Plan& plan) {
  std::vector<size_t> last(plan.values.size(), 0);
  for (size_t k = 0; k < plan.ops.size(); ++k)
    for (const std::vector<plan::ValueId>* ids : {&plan.ops[k].out, &plan.ops[k].in})
      for (const plan::ValueId id : *ids) last.at(static_cast<size_t>(id)) = k;
  for (const plan::Output& o : plan.outputs)
    last.at(static_cast<size_t>(o.value)) = plan.ops.size();
  Taken taken[2];
  for (size_t k = 0; k < plan.ops.size(); ++k) {
    const Op& op = plan.ops[k];
    for (const plan::ValueId id : op.out) {
      const Value& v = plan.values.at(static_cast<size_t>(id));
      const bool wanted = v.rows == plan::TokenSet::kOutputs;
      take(&taken[wanted], wanted ? plan.arena_output_bytes : plan.arena_token_bytes, v);
    }
    for (const std::vector<plan::ValueId>* ids : {&op.out, &op.in}) {
      for (const plan::ValueId id : *ids) {
        const Value& v = plan.values.at(static_cast<size_t>(id));
        if (last[static_cast<size_t>(id)] == k) {
          taken[v.rows == plan::TokenSet::kOutputs].erase(v.offset);
        }
      }
    }
  }
}

void check_plan(const Plan& plan, const format::GgufFile& model, const format::GgufFile* target) {
  int32_t next = plan.prologue;
  for (const plan::LayerRange& range : plan.layers) {
    require(range.first == next && range.count >= 0);
    next += range.count;
  }
  require(next <= static_cast<int32_t>(plan.ops.size()));
  const auto tensors = static_cast<int32_t>(model.tensors().size());
  const auto others = target ? static_cast<int32_t>(target->tensors().size()) : 0;
  for (const Op& op : plan.ops) {
    require(op.line > 0 && static_cast<size_t>(op.line) < plan.source.size());
    for (const plan::TensorId id : op.weights) {
      require(id == plan::kNone || (id >= 0 && id < tensors) ||
              (id >= plan::kTargetTensor && id - plan::kTargetTensor < others));
    }
  }
  for (const plan::CacheSpec& cache : plan.caches) {
    require(cache.kv_heads > 0 && cache.head_dim > 0 && cache.value_dim > 0);
    require(cache.layer >= 0 && cache.layer < plan.n_layers);
  }
  check_arena(plan);
}

void compile(std::string_view text, const format::GgufFile& model,
             const plan::CompileOptions& options) {
  const plan::ArchText arch{"fuzz", std::string(text), "fuzz.arch"};
  const auto compiled = text == "=" ? plan::compile(library(), model, options)
                                    : plan::compile_text(library(), arch, model, options);
  if (!compiled) return check_error(compiled.error().message);
  check_plan(compiled->plan, model, options.target);
  if (compiled->plan.ops.size() <= kOpsToExplain) {
    require(!plan::explain(compiled->plan, {model, options.target}, {}).empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kHead) return 0;
  const Header& header = *headers()[static_cast<uint8_t>(data[0] - 'a') % std::size(kHeaders)];
  const auto bits = static_cast<uint8_t>(data[1] - '0');
  const size_t patches =
      std::min<size_t>(static_cast<uint8_t>(data[2] - '0') % 8, (size - kHead) / kPatch);
  plan::CompileOptions options;
  options.fuse = (bits & 1) == 0;
  options.precise = (bits & 2) != 0;
  if ((bits & 4) != 0) options.target = &headers()[kTarget]->file;
  options.context = (bits & 8) != 0 ? 64 : 0;

  const size_t head = kHead + kPatch * patches;
  const std::string_view text(reinterpret_cast<const char*>(data) + head, size - head);
  if (patches == 0) {
    compile(text, header.file, options);
    return 0;
  }
  std::string bytes = header.bytes;
  for (const uint8_t* patch = data + kHead; patch != data + head; patch += kPatch) {
    bytes[static_cast<size_t>(patch[0] | patch[1] << 8) % bytes.size()] =
        static_cast<char>(patch[2]);
  }
  const auto damaged = format::GgufFile::parse(std::as_bytes(std::span(bytes)), "damaged", true);
  if (damaged) {
    compile(text, *damaged, options);
  } else {
    require(!damaged.error().message.empty());
  }
  return 0;
}

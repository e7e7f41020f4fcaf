// Takes a path, gives a LoadedModel or the one sentence that says why not.
//
// The order is from cheap to dear, so that a bad file is refused before anything big is allocated:
//   map and index the file -> header sanity -> compile the plan -> vocabulary -> chat template
//   -> kernels and pool -> repack the weights.
// The reader has checked that every byte is where the header says; the compiler checks keys that
// the architecture file reads and every tensor's shape. What is left for this stage are relations
// between the parts (vocabulary against embedding rows) and values that no statement reads but that
// sessions rely on (context length).
#include "model/model.h"

#include "base/check.h"
#include "base/memory.h"
#include "model/vocabulary.h"
#include "quant/tensor_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <new>
#include <system_error>
#include <utility>

namespace culet::model {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int32_t kMaxPassRows = 8192;
constexpr int32_t kMaxOutputs = 64;
constexpr int64_t kMaxSequence = 32768;  // tokens of an encoder's sequence, which is one pass

// Says which model file an error of a lower stage is about, unless it does already.
template <class T>
Result<T> about(const std::string& path, Result<T> result) {
  if (!result && result.error().message.find(path) == std::string::npos) {
    return fail(result.error().code, fmt::format("{}: {}", path, result.error().message));
  }
  return result;
}

Result<void> check_options(const ModelOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} threads cannot be used; use 1 to {}, or 0 for one per core",
                            options.threads, kMaxThreads));
  }
  if (options.ubatch_size < 0 || options.ubatch_size > kMaxPassRows) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("ubatch_size is {}, but it must be 1 to {}, or 0 for the default",
                            options.ubatch_size, kMaxPassRows));
  }
  return {};
}

// ---------------------------------------------------------------- the header by itself

Result<std::string> read_architecture(const format::GgufFile& file) {
  const format::MetaValue* value = file.find("general.architecture");
  const auto name = value ? value->as_string() : std::nullopt;
  if (!name || name->empty()) {
    return fail(ErrorCode::kCorrupt,
                "the key general.architecture is missing or not a string, so the architecture of "
                "the model is unknown; get another copy of the model");
  }
  return std::string(*name);
}

Result<void> check_finite_keys(const format::GgufFile& file, const std::string& prefix) {
  for (const format::MetaEntry& entry : file.metadata()) {
    if (!entry.key.starts_with(prefix)) continue;
    const auto number = entry.value.as_number();
    if (number && !std::isfinite(*number)) {
      return fail(
          ErrorCode::kCorrupt,
          fmt::format("the key {} is {}, not a finite number; get another copy of the model",
                      entry.key, *number));
    }
  }
  return {};
}

// The key's integer when it is there; an error when it is there and not an integer in [low, high].
Result<std::optional<int64_t>> int_key(const format::GgufFile& file, const std::string& key,
                                       int64_t low, int64_t high) {
  const format::MetaValue* value = file.find(key);
  if (!value || value->is_array()) return std::optional<int64_t>();
  const auto number = value->as_int();
  if (!number) {
    return fail(ErrorCode::kCorrupt, fmt::format("the key {} is not an integer", key));
  }
  if (*number < low || *number > high) {
    return fail(ErrorCode::kCorrupt, fmt::format("the key {} is {}, but must be from {} to {}", key,
                                                 *number, low, high));
  }
  return number;
}

Result<void> check_header(const format::GgufFile& file, const std::string& architecture) {
  const std::string prefix = architecture + ".";
  CULET_TRY_VOID(check_finite_keys(file, prefix));
  // A layer has a tensor at least, so more layers than tensors cannot be true.
  const auto tensors = static_cast<int64_t>(file.tensors().size());
  CULET_TRY_VOID(int_key(file, prefix + "block_count", 1, std::max<int64_t>(tensors, 1)));
  CULET_TRY_VOID(int_key(file, prefix + "context_length", 1, INT32_MAX));
  CULET_TRY(auto heads, int_key(file, prefix + "attention.head_count", 1, INT32_MAX));
  CULET_TRY(auto kv_heads, int_key(file, prefix + "attention.head_count_kv", 1, INT32_MAX));
  if (heads && kv_heads && *heads % *kv_heads != 0) {
    return fail(ErrorCode::kCorrupt, fmt::format("{}attention.head_count is {}, not a multiple of "
                                                 "{}attention.head_count_kv, which is {}",
                                                 prefix, *heads, prefix, *kv_heads));
  }
  return {};
}

// ---------------------------------------------------------------- the parts against each other

// What a draft model's target must be, besides what the compiler asks of it.
Result<void> check_target(const ModelOptions& options, const LoadedModel& target) {
  if (target.info.kind != ModelKind::kDecoder) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("its target {} is a model of kind {} (architecture {}), but a target must be a "
                    "decoder; load the draft model with the model that it was trained for",
                    target.info.path, kind_name(target.info.kind), target.info.architecture));
  }
  if (!options.chat_template.empty()) {
    return fail(
        ErrorCode::kInvalidArgument,
        "a draft model does not render conversations; give the chat template to its target");
  }
  if (options.text_only) return {};
  if (!target.executor) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("its target {} was loaded with text_only, so it cannot run; load it "
                            "without",
                            target.info.path));
  }
  if (options.threads > 0 && options.threads != target.pool->size()) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "a draft model uses the threads of its target, which are {0}, not {1}; use 0 or {0}",
            target.pool->size(), options.threads));
  }
  return {};
}

// A draft model speaks of its target's tokens: the file may list them, and then they must be the
// same.
Result<void> check_target_tokens(const LoadedModel& model) {
  constexpr const char* kTokens = "tokenizer.ggml.tokens";
  constexpr const char* kAdvice = "load the draft model with the model that it was trained for";
  const LoadedModel& target = *model.target;
  const plan::Plan& plan = model.compiled.plan;
  const int64_t width = plan.values[static_cast<size_t>(plan.output("logits"))].width;
  if (width != target.info.vocabulary_size) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("the draft model computes {} logits, but its target {} has a vocabulary of "
                    "{} tokens; {}",
                    width, target.info.path, target.info.vocabulary_size, kAdvice));
  }
  const format::MetaValue* own = model.file.find(kTokens);
  const format::MetaValue* theirs = target.file.find(kTokens);
  if (own == nullptr) return {};
  CULET_CHECK(theirs != nullptr);
  if (own->size() != theirs->size()) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("the draft model has a vocabulary of {} tokens, and its target {} one of "
                    "{}; {}",
                    own->size(), target.info.path, theirs->size(), kAdvice));
  }
  for (uint64_t id = 0; id < own->size(); ++id) {
    if (own->at(id).as_string() == theirs->at(id).as_string()) continue;
    return fail(
        ErrorCode::kUnsupported,
        fmt::format(
            "token {} of the draft model's vocabulary differs from that of its target {}; {}", id,
            target.info.path, kAdvice));
  }
  return {};
}

Result<void> check_vocabulary(const plan::Plan& plan, const plan::Tensors& tensors,
                              int64_t tokens) {
  for (const plan::Op& op : plan.ops) {
    if (op.kind != plan::OpKind::embed) continue;
    if (op.attr.as<plan::EmbedAttributes>().by != plan::EmbedAttributes::By::kToken) continue;
    const format::TensorInfo& table = tensors.at(op.weights.at(0));
    if (static_cast<int64_t>(table.dims[1]) != tokens) {
      return fail(ErrorCode::kCorrupt,
                  fmt::format("the vocabulary has {} tokens, but {} has {} rows; the file is "
                              "inconsistent, so get another copy of the model",
                              tokens, table.name, table.dims[1]));
    }
  }
  const plan::ValueId logits = plan.output("logits");
  if (logits == plan::kNone) return {};
  const int64_t width = plan.values[static_cast<size_t>(logits)].width;
  if (width != tokens) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("the vocabulary has {} tokens, but the model computes {} logits; the "
                            "file is inconsistent, so get another copy of the model",
                            tokens, width));
  }
  return {};
}

// Null: the file has no such key, or the template does not parse, and *error says why.
std::shared_ptr<const chat::ChatTemplate> template_of_file(const char* key, LoadedModel* model,
                                                           std::string* error) {
  const format::MetaValue* value = model->file.find(key);
  const auto source = value ? value->as_string() : std::nullopt;
  if (!source) return nullptr;
  auto parsed = chat::ChatTemplate::parse(*source);
  if (parsed) return *std::move(parsed);
  *error = parsed.error().message;
  return nullptr;
}

// A template of the file that does not parse is no reason to refuse the model: raw continuation
// still works. One that the caller gave is.
Result<void> read_chat_template(const std::string& given, LoadedModel* model) {
  if (!given.empty()) {
    auto parsed = chat::ChatTemplate::parse(given);
    if (!parsed) {
      return fail(parsed.error().code,
                  "the chat template that was given cannot be used: " + parsed.error().message);
    }
    model->chat = *std::move(parsed);
    return {};
  }
  model->chat = template_of_file("tokenizer.chat_template", model, &model->chat_error);
  if (!model->chat_error.empty()) {
    model->info.warnings.push_back("the chat template cannot be used: " + model->chat_error);
  }
  std::string error;
  model->chat_tools = template_of_file("tokenizer.chat_template.tool_use", model, &error);
  if (!error.empty()) {
    model->info.warnings.push_back("the chat template for tools cannot be used: " + error);
  }
  return {};
}

// ---------------------------------------------------------------- sampling the file asks for

struct SamplingKey {
  const char* name;  // behind general.sampling.
  double low, high;  // a value outside is ignored, with a warning
  void (*set)(SamplerOptions*, double);
};

constexpr SamplingKey kSamplingKeys[] = {
    {"temp", 0, 100, [](SamplerOptions* s, double x) { s->temperature = static_cast<float>(x); }},
    {"top_k", 0, INT32_MAX,
     [](SamplerOptions* s, double x) { s->top_k = static_cast<int32_t>(x); }},
    {"top_p", 1e-6, 1, [](SamplerOptions* s, double x) { s->top_p = static_cast<float>(x); }},
    {"min_p", 0, 1, [](SamplerOptions* s, double x) { s->min_p = static_cast<float>(x); }},
    {"xtc_probability", 0, 1,
     [](SamplerOptions* s, double x) { s->xtc_probability = static_cast<float>(x); }},
    {"xtc_threshold", 0, 1,
     [](SamplerOptions* s, double x) { s->xtc_threshold = static_cast<float>(x); }},
    {"mirostat", 0, 2, [](SamplerOptions* s, double x) { s->mirostat = static_cast<int32_t>(x); }},
    {"mirostat_tau", 0, 100,
     [](SamplerOptions* s, double x) { s->mirostat_tau = static_cast<float>(x); }},
    {"mirostat_eta", 0, 10,
     [](SamplerOptions* s, double x) { s->mirostat_eta = static_cast<float>(x); }},
    {"penalty_repeat", 0.01, 100,
     [](SamplerOptions* s, double x) { s->repeat_penalty = static_cast<float>(x); }},
    {"penalty_last_n", -1, INT32_MAX,
     [](SamplerOptions* s, double x) { s->repeat_last_n = static_cast<int32_t>(x); }},
};

void read_sampling(const format::GgufFile& file, ModelInfo* info) {
  for (const SamplingKey& key : kSamplingKeys) {
    const std::string name = fmt::format("general.sampling.{}", key.name);
    const format::MetaValue* value = file.find(name);
    if (!value) continue;
    const auto number = value->as_number();
    if (number && *number >= key.low && *number <= key.high) {
      key.set(&info->sampling, *number);
    } else {
      info->warnings.push_back(fmt::format(
          "the key {} is ignored: it is not a number from {} to {}", name, key.low, key.high));
    }
  }
}

// ---------------------------------------------------------------- what show prints

void count_tensors(const format::GgufFile& file, ModelInfo* info) {
  std::map<std::string, TensorTypeInfo> types;
  for (const format::TensorInfo& tensor : file.tensors()) {
    info->parameters += tensor.elements();
    TensorTypeInfo& type = types[std::string(quant::type_info(tensor.type).name)];
    ++type.tensors;
    type.bytes += tensor.bytes;
  }
  info->tensors = file.tensors().size();
  for (auto& [name, type] : types) {
    type.type = name;
    info->tensor_types.push_back(type);
  }
}

void describe_file(const LoadedModel& model, ModelInfo* info) {
  const format::GgufFile& file = model.file;
  info->file_bytes = file.file_bytes();
  if (const auto* name = file.find("general.name"); name && name->as_string()) {
    info->name = *name->as_string();
  }
  if (const auto* width = file.find(info->architecture + ".embedding_length")) {
    info->hidden_size = width->as_int().value_or(0);
  }
  count_tensors(file, info);
  read_sampling(file, info);
  info->warnings.insert(info->warnings.end(), file.warnings().begin(), file.warnings().end());
}

ModelKind kind_of(const plan::Plan& plan) {
  if (plan.kind == "encoder") return ModelKind::kEncoder;
  return plan.kind == "decoder" ? ModelKind::kDecoder : ModelKind::kDraft;
}

void describe_plan(const plan::Compiled& compiled, ModelInfo* info) {
  info->arch_origin = compiled.origin;
  info->arch_sha256 = compiled.plan.source_sha256;
  info->context_length = compiled.context_length;
  info->layers = compiled.plan.n_layers;
  info->kind = kind_of(compiled.plan);
  if (const plan::ValueId vector = compiled.plan.output("pooled"); vector != plan::kNone)
    info->embedding_dimension = compiled.plan.values[static_cast<size_t>(vector)].width;
  for (const plan::CacheSpec& cache : compiled.plan.caches) {
    const bool window = cache.policy == plan::CachePolicy::kWindow;
    LayerCacheInfo layer;
    layer.layer = cache.layer;
    layer.name = cache.name;
    layer.kind = window ? CacheKind::kWindow : CacheKind::kFull;
    layer.window = window ? cache.window : 0;
    layer.kv_heads = cache.kv_heads;
    layer.key_size = cache.head_dim;
    layer.value_size = cache.value_dim;
    info->caches.push_back(std::move(layer));
  }
  for (const plan::StateSpec& state : compiled.plan.states) {
    LayerCacheInfo layer;
    layer.layer = state.layer;
    layer.name = state.name;
    layer.kind = CacheKind::kState;
    layer.tokens = state.rows;
    layer.width = state.width;
    info->caches.push_back(std::move(layer));
  }
  info->warnings.insert(info->warnings.end(), compiled.warnings.begin(), compiled.warnings.end());
  if (info->context_length == 0) {
    info->warnings.push_back("the file does not state the context length it was trained for");
  }
}

// ---------------------------------------------------------------- kernels, threads, weights

Result<void> choose_kernels(const std::string& isa, kernels::Kernels* table) {
  const char* why_not = kernels::select_kernels(isa.empty() ? nullptr : isa.c_str(), table);
  if (!why_not) return {};
  std::string usable;
  for (const kernels::IsaLevel* level = kernels::isa_levels(); level->name; ++level) {
    if (level->usable) usable += (usable.empty() ? "" : ", ") + std::string(level->name);
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("the instruction set {} {}; usable here: {}", isa, why_not, usable));
}

Result<void> start_pool(int threads, LoadedModel* model) {
  if (model->target && model->target->pool) {
    model->pool = model->target->pool;
    return {};
  }
  try {
    model->pool = std::make_shared<base::ThreadPool>(threads);
  } catch (const std::system_error& e) {
    return fail(ErrorCode::kExhausted,
                fmt::format("the system cannot start so many threads ({}); use fewer", e.what()));
  }
  return {};
}

backend::PrepareOptions prepare_options(const ModelOptions& options, int32_t rows) {
  backend::PrepareOptions prepare;
  prepare.limits.tokens = rows;
  prepare.limits.outputs = std::min(prepare.limits.tokens, kMaxOutputs);
  prepare.precise = options.precise;
  prepare.repack = options.repack;
  return prepare;
}

void describe_memory(const ModelOptions& options, int threads, LoadedModel* model) {
  const backend::Executor::Memory memory =
      backend::Executor::memory(model->compiled.plan, model->tensors(), model->kernels, threads,
                                prepare_options(options, model->ubatch_size));
  ModelInfo& info = model->info;
  info.threads = threads;
  info.repacked = options.repack;
  info.packed_bytes = memory.packed;
  info.converted_bytes = memory.converted;
  info.workspace_bytes = memory.workspace;
  info.mapped_bytes = memory.mapped;
}

// Pages of the file's mapping are not counted: the system takes them back when it must.
Result<void> check_room(const ModelOptions& options, const ModelInfo& info) {
  return check_memory(
      options.memory_limit, info.packed_bytes + info.converted_bytes + info.workspace_bytes,
      fmt::format("this model ({} MiB of repacked weights, {} MiB of workspace)",
                  info.packed_bytes >> 20, info.workspace_bytes >> 20),
      options.repack ? "close other programs, use a smaller model, or try --no-repack"
                     : "close other programs or use a smaller model");
}

// An encoder's sequence cannot be cut, so its passes may be as long as the model reads. That is
// address space; what a long one really takes is checked when it comes.
int32_t most_rows(const LoadedModel& model) {
  if (model.compiled.plan.kind != "encoder") return model.ubatch_size;
  const int64_t trained = model.compiled.context_length;
  const int64_t longest = trained > 0 ? std::min(trained, kMaxSequence) : kMaxSequence;
  return std::max(model.ubatch_size, static_cast<int32_t>(longest));
}

Result<void> prepare(const ModelOptions& options, LoadedModel* model) {
  backend::PrepareOptions prepare = prepare_options(options, most_rows(*model));
  if (options.progress) {
    prepare.progress = [&options](uint64_t done, uint64_t all) {
      return options.progress({"loading", done, all});
    };
  }
  CULET_TRY(model->executor, backend::Executor::prepare(model->compiled.plan, model->tensors(),
                                                        model->kernels, *model->pool, prepare));
  const ModelInfo& info = model->info;
  const uint64_t left = options.memory_limit == 0
                            ? UINT64_MAX
                            : options.memory_limit - info.packed_bytes - info.converted_bytes;
  model->memory = std::make_shared<cache::MemoryPool>(left, info.workspace_bytes);
  return {};
}

Result<int64_t> plan_context(const ModelOptions& options, const LoadedModel& model) {
  if (model.target) return model.target->context;
  if (options.context > 0) return options.context;
  CULET_TRY(const auto trained,
            int_key(model.file, model.info.architecture + ".context_length", 1, INT32_MAX));
  return std::min(trained.value_or(kDefaultContext), kDefaultContext);
}

Result<void> read_plan(const ModelOptions& options, LoadedModel* model) {
  CULET_TRY(model->info.architecture, read_architecture(model->file));
  CULET_TRY_VOID(check_header(model->file, model->info.architecture));
  CULET_TRY(model->context, plan_context(options, *model));
  CULET_TRY(const plan::ArchLibrary library, plan::ArchLibrary::open(options.arch_dir));
  plan::CompileOptions compile{
      .precise = options.precise, .fuse = options.fuse, .context = model->context};
  if (model->target) {
    compile.target = &model->target->file;
    compile.target_compiled = &model->target->compiled;
  }
  CULET_TRY(model->compiled, plan::compile(library, model->file, compile));
  return {};
}

// A draft model has no text of its own.
Result<void> share_text(LoadedModel* model) {
  CULET_TRY_VOID(check_target_tokens(*model));
  model->tokenizer = model->target->tokenizer;
  model->info.vocabulary_size = model->target->info.vocabulary_size;
  return check_vocabulary(model->compiled.plan, model->tensors(), model->info.vocabulary_size);
}

Result<void> read_text(const ModelOptions& options, LoadedModel* model) {
  CULET_TRY(const text::Vocabulary vocabulary, read_vocabulary(model->file));
  CULET_TRY(model->tokenizer, text::Tokenizer::make(vocabulary));
  model->info.vocabulary_size = model->tokenizer->size();
  CULET_TRY_VOID(
      check_vocabulary(model->compiled.plan, model->tensors(), model->tokenizer->size()));
  return read_chat_template(options.chat_template, model);
}

int32_t ubatch_size(const ModelOptions& options, const LoadedModel& model) {
  if (model.target) return 1;
  return options.ubatch_size > 0 ? options.ubatch_size : backend::Limits{}.tokens;
}

Result<void> read(const ModelOptions& options, LoadedModel* model) {
  if (model->target) CULET_TRY_VOID(check_target(options, *model->target));
  CULET_TRY_VOID(read_plan(options, model));
  CULET_TRY_VOID(model->target ? share_text(model) : read_text(options, model));
  CULET_TRY_VOID(choose_kernels(options.isa, &model->kernels));
  CULET_TRY_VOID(start_pool(options.threads, model));
  model->ubatch_size = ubatch_size(options, *model);
  describe_memory(options, model->pool->size(), model);
  if (options.text_only) {
    model->pool.reset();
    const auto runs = backend::Executor::check(model->compiled.plan, model->tensors());
    if (!runs) model->info.cannot_run = runs.error().message;
    return {};
  }
  CULET_TRY_VOID(check_room(options, model->info));
  return prepare(options, model);
}

// Tokens of a sequence of an encoder, at most.
int64_t longest_sequence(const LoadedModel& model) {
  if (model.compiled.plan.kind != "encoder" || !model.executor) return 0;
  const int64_t most =
      std::min<int64_t>(model.executor->limits().tokens, model.executor->positions());
  const int64_t trained = model.compiled.context_length;
  return trained > 0 ? std::min(trained, most) : most;
}

// Which factors the rotation has, where they follow the context.
void describe_ropes(LoadedModel* model) {
  const plan::Plan& plan = model->compiled.plan;
  if (plan.no_stream.empty()) return;
  model->info.rope_context = model->context;
  for (const plan::RopeSpec& rope : plan.ropes) {
    if (rope.factors != plan::kNone)
      model->info.rope_factors = model->tensors().at(rope.factors).name;
  }
}

void describe_model(const ModelOptions& options, LoadedModel* model) {
  ModelInfo& info = model->info;
  describe_file(*model, &info);
  describe_plan(model->compiled, &info);
  describe_ropes(model);
  info.sequence_length = longest_sequence(*model);
  info.isa = model->kernels.isa;
  info.precise = options.precise;
  // A template that cannot be used is still there: rendering says what is wrong with it.
  info.has_chat_template = model->chat != nullptr || !model->chat_error.empty();
}

}  // namespace

Result<void> check_memory(uint64_t limit, uint64_t bytes, const std::string& what,
                          const std::string& advice) {
  const uint64_t most = limit == 0 ? base::available_memory() : limit;
  if (bytes <= most) return {};
  return fail(ErrorCode::kExhausted,
              fmt::format("{} needs {} MiB of memory, and {} {} MiB; {}", what,
                          (bytes + (1 << 20) - 1) >> 20, limit == 0 ? "you have" : "the limit is",
                          most >> 20, advice));
}

Result<std::unique_ptr<LoadedModel>> load(const std::string& path, const ModelOptions& options,
                                          const LoadedModel* target) {
  CULET_TRY_VOID(check_options(options));
  try {
    auto model = std::make_unique<LoadedModel>();
    model->target = target;
    CULET_TRY(model->file, about(path, format::GgufFile::open(path)));
    model->info.path = path;
    model->memory_limit = options.memory_limit;
    CULET_TRY_VOID(about(path, read(options, model.get())));
    describe_model(options, model.get());
    return model;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted,
                fmt::format("{}: there is not enough memory to load this model", path));
  }
}

}  // namespace culet::model

namespace culet {

std::string_view kind_name(ModelKind kind) {
  constexpr std::string_view kNames[] = {"decoder", "encoder", "draft"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace culet

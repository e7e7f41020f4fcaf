// One function a command. Each gives the exit status; an Error becomes one line on standard error.
#pragma once

#include "cli/arguments.h"
#include "cli/console.h"
#include "culet/culet.h"

#include <memory>
#include <vector>

namespace culet::cli {

constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2;
constexpr int kExitInterrupted = 130;  // 128 + SIGINT; main() puts the signal that it was

Result<int> run_command(const RunArguments& arguments, Output& out);
Result<int> tokenize_command(const TokenizeArguments& arguments, Output& out);
Result<int> detokenize_command(const DetokenizeArguments& arguments, Output& out);
Result<int> score_command(const ScoreArguments& arguments, Output& out);
Result<int> embed_command(const EmbedArguments& arguments, Output& out);
Result<int> explain_command(const ExplainArguments& arguments, Output& out);
Result<int> profile_command(const ExplainArguments& arguments, Output& out);
Result<int> bench_command(const BenchArguments& arguments, Output& out);
Result<int> arch_command(const ArchArguments& arguments, Output& out);
Result<int> show_command(const ShowArguments& arguments, Output& out);
Result<int> list_command(const ListArguments& arguments, Output& out);
Result<int> remove_command(const RemoveArguments& arguments, Output& out);
Result<int> pull_command(const PullArguments& arguments, Output& out);
Result<int> quantize_command(const QuantizeArguments& arguments, Output& out);
Result<int> convert_command(const ConvertArguments& arguments, Output& out);
Result<int> complete_command(const CompleteArguments& arguments, Output& out);

// Finds the model by its name and loads it, with progress on the status line. Unless only text is
// loaded, the warnings of the model are printed on standard error, also where it is to be quiet.
Result<std::shared_ptr<const Model>> load_model(const ModelArguments& arguments,
                                                bool quiet = false);
// "rope_factors_short.weight, loaded for a context of 4096 tokens (--ctx)"; "" where the rotation
// does not follow the context.
std::string rotation(const ModelInfo& info);
// The same as a note on standard error.
void print_rotation(const ModelInfo& info);

// Random ids that are the same every time, for measuring.
std::vector<Token> fixed_random_tokens(int64_t count, int64_t vocabulary);

}  // namespace culet::cli

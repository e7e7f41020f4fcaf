// Pieces that the declarations of all commands share (arguments.cpp), and the declarations that
// have files of their own (arguments_measure.cpp, arguments_convert.cpp).
#pragma once

#include "cli/arguments.h"
#include "cli/help.h"

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
class Validator;
}  // namespace CLI

namespace culet::cli {

// A number in [low, high]; NaN is in no range.
CLI::Validator number_in(double low, double high, const std::string& words);
// MODEL, and what every command that opens one reads ...
void add_model(CLI::App* command, ModelArguments* model);
// ... those that compute with it, or tell what that takes ...
void add_model_to_run(CLI::App* command, ModelArguments* model);
// ... and the pieces of these: --threads and --no-repack under a heading of the help, --precise.
void add_running(CLI::App* command, ModelArguments* model, const std::string& group);
void add_threads(CLI::App* command, ModelArguments* model, const std::string& group);
void add_precise(CLI::App* command, ModelArguments* model);
void add_target(CLI::App* command, ModelArguments* model);
void add_arch_dir(CLI::App* command, std::string* arch_dir);
void add_kv(CLI::App* command, KvTypes* kv);

void declare_bench(CLI::App* command, BenchArguments* bench);
void declare_explain(CLI::App* command, ExplainArguments* explain);
void declare_arch(CLI::App* command, ArchArguments* arch);
void declare_quantize(CLI::App* command, QuantizeArguments* quantize);
void declare_convert(CLI::App* command, ConvertArguments* convert);
Help bench_help();
Help explain_help();
Help arch_help();
Help quantize_help();
Help convert_help();

}  // namespace culet::cli

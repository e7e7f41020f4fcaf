// Flags of the commands that make model files.
#include "cli/flags.h"

#include <CLI/CLI.hpp>

#include <algorithm>

namespace culet::cli {
namespace {

constexpr const char* kOfCheck = "With --check";

std::string joined(const std::vector<std::string>& words, const std::string& between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

CLI::Validator one_of(const std::vector<std::string>& names, const std::string& what) {
  return CLI::Validator(
      [names, what](std::string& word) {
        const bool known = std::find(names.begin(), names.end(), word) != names.end();
        return known ? std::string()
                     : "\"" + word + "\" is no " + what + "; use " + joined(names, ", ");
      },
      "", "");
}

// "WHICH=TYPE"
TensorTypeRule parse_rule(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    throw CLI::ValidationError("--keep", "\"" + text + "\" is not WHICH=TYPE, as head=Q8_0");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

void add_keep(CLI::App* command, std::vector<TensorTypeRule>* keep) {
  command
      ->add_option_function<std::vector<std::string>>(
          "--keep",
          [keep](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) keep->push_back(parse_rule(text));
          },
          "Another type for some tensors; the last one that matches a tensor decides; may be given "
          "several times")
      ->type_name("WHICH=TYPE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_output(CLI::App* command, bool* json, bool* quiet) {
  command->add_flag("--json", *json, "Print JSON");
  command->add_flag("-q,--quiet", *quiet, "No progress on standard error");
}

}  // namespace

Help quantize_help() {
  return {{HelpText{"F32 to MXFP4: every matrix gets that type. Q5_K_M to Q3_K_S are mixes: the "
                    "tensors that need more\nbits get them (docs/quantization.md). Vectors, norms, "
                    "routers and convolutions stay as they are.\nStart from F32, BF16 or F16 "
                    "weights, because precision that a smaller type has lost does not come\nback. "
                    "The same command gives the same bytes on every machine.\nWHICH is a name of "
                    "tensors, in which * stands for any characters, or one of these roles:"},
           HelpLines{"", {joined(tensor_roles(), " ")}},
           examples({"culet quantize model-bf16.gguf model-q4.gguf Q4_K_M",
                     "culet quantize model-bf16.gguf model.gguf Q4_0 --keep head=Q8_0 --keep "
                     "embd=Q8_0",
                     "culet quantize model-bf16.gguf model.gguf Q5_K --keep 'blk.0.*=Q8_0'",
                     "culet quantize model-bf16.gguf model-q4.gguf Q4_K_M --check book.txt"})}};
}

Help convert_help() {
  return {
      {HelpText{"The folder has config.json, *.safetensors, and tokenizer.json or tokenizer.model. "
                "The class of the\nmodel (\"architectures\" in config.json) must be one of these:"},
       HelpLines{"", {joined(convertible_models(), " ")}},
       HelpText{"or a class of the family file in --family (docs/formats/family.md). Whatever a "
                "GGUF file cannot\nexpress, or would lack, is an error."},
       examples({"culet convert SmolLM2-135M-Instruct smollm2.gguf",
                 "culet convert Qwen3-0.6B qwen3.gguf --type Q4_K_M --keep head=Q8_0"})}};
}

void declare_quantize(CLI::App* command, QuantizeArguments* quantize) {
  add_model(command, &quantize->model);
  command->add_option("OUT", quantize->out, "The GGUF file to write")->required();
  command->add_option("TYPE", quantize->type, "Type of the weights, or a mix")
      ->required()
      ->check(one_of(quantization_types(), "type"))
      ->type_name(joined(quantization_types(), "|"));
  add_keep(command, &quantize->keep);
  add_threads(command, &quantize->model, "Options");
  add_output(command, &quantize->json, &quantize->quiet);
  CLI::Option* check =
      command
          ->add_option(
              "--check", quantize->check,
              "Then predict the text in FILE with both models, and print how much they differ")
          ->type_name("FILE");
  command
      ->add_flag("--precise", quantize->model.options.precise,
                 "Compare with float32 activations instead of int8")
      ->needs(check)
      ->group(kOfCheck);
}

void declare_convert(CLI::App* command, ConvertArguments* convert) {
  command->add_option("DIR", convert->folder, "A folder as published on Hugging Face")->required();
  command->add_option("OUT", convert->out, "The GGUF file to write")->required();
  command
      ->add_option("--type", convert->type,
                   "Type of the weights, or a mix (default: F32, F16 or BF16, whichever the folder "
                   "uses most)")
      ->check(one_of(quantization_types(), "type"))
      ->type_name(joined(quantization_types(), "|"));
  add_keep(command, &convert->keep);
  command->add_option("--family", convert->family, "A family file, instead of the built-in one")
      ->type_name("FILE");
  command
      ->add_option(
          "--ignore-config", convert->ignore_config,
          "A member of the configuration files that changes nothing, though the family does "
          "not know it; may be given several times")
      ->type_name("NAME")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_threads(command, &convert->model, "Options");
  add_arch_dir(command, &convert->model.options.arch_dir);
  add_output(command, &convert->json, &convert->quiet);
}

}  // namespace culet::cli

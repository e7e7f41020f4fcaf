// Takes argv and the environment, gives one command's arguments or a usage error.
//
// Each command has one function that declares its flags beside the fields they fill; help texts end
// with examples because those are read first. Flags win over environment variables, and a variable
// with a value nobody understands is an error like a flag with one: what is spelled wrong must not
// be silently ignored.
#include "cli/completion.h"
#include "cli/flags.h"
#include "cli/manual.h"
#include "cli/reference.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

namespace culet::cli {
namespace {

constexpr int kMaxThreads = 1024;

constexpr std::string_view kAbout =
    "Runs open language models on this machine's processor.\n"
    "MODEL is the path of a GGUF file, or a name: culet list shows those on this machine.";

constexpr std::string_view kFooter =
    "Environment:\n"
    "  CULET_ISA=NAME        instruction set to use instead of the best one (culet show lists it)\n"
    "  CULET_THREADS=N       threads when --threads is not given\n"
    "  CULET_FUSE=off        run the plan without fused operations (same bits, slower)\n"
    "  CULET_ARCH_DIR=DIR    what --arch-dir says\n"
    "  CULET_CACHE=DIR       where culet pull puts models (default ~/.cache/culet/models)\n"
    "\nExamples:\n"
    "  culet pull smollm2\n"
    "  culet run smollm2 \"Why is the sky blue?\"\n"
    "  culet show model.gguf\n"
    "  culet COMMAND --help\n"
    "\nExit status: 0 done, 1 it failed, 2 a wrong command line or variable, 130 Ctrl-C\n"
    "(143 SIGTERM).";

constexpr std::string_view kRunFooter =
    "The same command gives the same text: the seed is 0 unless you say otherwise. Defaults of\n"
    "sampling are those that the model file names, if it names any (culet show).\n"
    "Ctrl-C stops the answer and keeps what is there.\n"
    "\nExamples:\n"
    "  culet run model.gguf \"Name three rivers.\"\n"
    "  culet run model.gguf --system \"Answer in one word.\" \"Capital of France?\" --temp 0\n"
    "  culet run model.gguf --raw \"Once upon a time\" -n 100 --seed 7\n"
    "  culet run model.gguf --jsonl \"Hello\" | jq -r 'select(.event==\"text\").text'\n"
    "  culet run model.gguf \"Hello\" --save talk && culet run model.gguf \"And then?\" --resume "
    "talk\n"
    "  git diff | culet run model.gguf -q --ctx 8192";

constexpr std::string_view kTokenizeFooter =
    "Prints a JSON array of token ids. Standard input is taken byte for byte.\n"
    "\nExamples:\n"
    "  culet tokenize model.gguf \"Hello, world\"\n"
    "  culet tokenize model.gguf --no-bos - < book.txt\n"
    "  culet tokenize model.gguf --parse-special \"<|im_start|>user\"";

constexpr std::string_view kScoreFooter =
    "Prints a JSON line a token: {pos, id, text, nll, entropy, top}. nll, entropy and top "
    "describe the\n"
    "distribution that predicted this token (null for the first); nats, from raw logits. The last "
    "line\n"
    "is {tokens, mean_nll, perplexity, next}; next is the distribution after the last token. With\n"
    "--stream the text may have any length, or never end: it is read and scored as it comes, and\n"
    "the last line says how many tokens are evicted.\n"
    "\nExamples:\n"
    "  culet score model.gguf book.txt | tail -1\n"
    "  tail -f log.txt | culet score model.gguf --stream --top 0\n"
    "  culet score model.gguf --stream part1.txt --save day1 && culet score model.gguf --stream "
    "part2.txt --resume day1\n"
    "  echo -n \"The sky is blue\" | culet score model.gguf --top 3\n"
    "  echo \"[1, 504, 33059]\" | culet score model.gguf --ids --precise --kv f32";

constexpr std::string_view kEmbedFooter =
    "Prints a JSON line a text: its vector as an array of numbers, or with --json an object\n"
    "{index, text, tokens, vector}. MODEL is an encoder with a pooling (culet show says so); a "
    "text\n"
    "is never cut: one that is longer than the model reads, or empty, is an error before any "
    "work.\n"
    "\nExamples:\n"
    "  culet embed model.gguf \"The first text\" \"The second one\"\n"
    "  culet embed model.gguf --file texts.txt --normalize > vectors.jsonl\n"
    "  culet embed model.gguf --json < texts.txt | jq '.vector | length'";

constexpr std::string_view kShowFooter =
    "Examples:\n"
    "  culet show model.gguf\n"
    "  culet show model.gguf --json | jq .tensor_types";

constexpr std::string_view kListFooter =
    "Shows the Ollama store, the Hugging Face cache and culet's own cache folder, and what the\n"
    "catalogue has besides.\n"
    "\nExamples:\n"
    "  culet list\n"
    "  culet list --json | jq -r '.models[].name'";

constexpr std::string_view kRemoveFooter =
    "Models in the Ollama store and the Hugging Face cache are not culet's, and stay.\n"
    "\nExamples:\n"
    "  culet rm smollm2\n"
    "  culet rm hf:Qwen/Qwen3-0.6B-GGUF:Q8_0";

constexpr std::string_view kCompletionFooter =
    "Prints a script that completes commands, options and names of models. Packages bring it "
    "along;\n"
    "without one, put the line for your shell into its start-up file.\n"
    "\nExamples:\n"
    "  source <(culet completion bash)\n"
    "  source <(culet completion zsh)\n"
    "  culet completion fish | source";

constexpr std::string_view kPullFooter =
    "Prints the path of each model. Ctrl-C keeps what is there; the same command continues.\n"
    "\nExamples:\n"
    "  culet pull smollm2\n"
    "  culet pull hf:Qwen/Qwen3-0.6B-GGUF:Q8_0\n"
    "  culet pull ollama:qwen3:0.6b\n"
    "\nEnvironment: CULET_CACHE, HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, PIP_INDEX_URL, "
    "https_proxy,\n"
    "SSL_CERT_FILE (docs/models.md).";

}  // namespace

CLI::Validator number_in(double low, double high, const std::string& words) {
  return CLI::Validator(
      [low, high, words](std::string& input) {
        double value = 0;
        const bool ok = CLI::detail::lexical_cast(input, value) && value >= low && value <= high;
        return ok ? std::string() : "\"" + input + "\" is not " + words;
      },
      "", "");
}

namespace {

// The parser itself would wrap -1 around.
std::string check_seed(std::string& input) {
  uint64_t seed = 0;
  const char* end = input.data() + input.size();
  const auto [at, error] = std::from_chars(input.data(), end, seed);
  const bool ok = error == std::errc() && at == end;
  return ok ? "" : "\"" + input + "\" is not a whole number from 0 to 18446744073709551615";
}

std::string footer(std::string_view text) { return std::string(text); }

}  // namespace

// ---------------------------------------------------------------- commands

CLI::App* add_command(CLI::App* app, const std::string& name, const std::string& what) {
  CLI::App* command = app->add_subcommand(name, what);
  command->group("Commands");
  return command;
}

void add_model(CLI::App* command, ModelArguments* model) {
  command->add_option("MODEL", model->path, "Path of a GGUF file, or a name that culet list shows")
      ->required();
  add_arch_dir(command, &model->options.arch_dir);
}

void add_precise(CLI::App* command, ModelArguments* model) {
  command->add_flag("--precise", model->options.precise,
                    "Compute with 32-bit activations instead of 8-bit ones: slower, closer");
}

void add_target(CLI::App* command, ModelArguments* model) {
  command
      ->add_option("--target", model->target,
                   "Of a drafter: the model that it was made for, a path or a name")
      ->type_name("MODEL");
}

void add_threads(CLI::App* command, ModelArguments* model, const std::string& group) {
  command
      ->add_option("--threads", model->options.threads,
                   "Threads to compute with (default: one a physical core)")
      ->check(number_in(1, kMaxThreads, "a number of threads from 1 to 1024"))
      ->group(group);
}

void add_running(CLI::App* command, ModelArguments* model, const std::string& group) {
  add_threads(command, model, group);
  command
      ->add_flag_callback(
          "--no-repack", [model] { model->options.repack = false; },
          "Read weights where the file is mapped, shared with other processes, instead "
          "of making a faster copy: slower, same results")
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
          "Type of the key and value cache, or KEYS,VALUES; f16-full: f32 in layers that have a "
          "window (default f16)")
      ->check(CLI::Validator(
          [](std::string& name) {
            return kv_types(name) ? std::string()
                                  : "\"" + name +
                                        "\" is no cache type; use f32, f16, bf16 or q8_0, two of "
                                        "these as KEYS,VALUES, or f16-full";
          },
          "", ""))
      ->type_name(kKvNames);
}

// --ctx, --kv and, for sessions that may have no end, --stream with what belongs to it.
void add_memory(CLI::App* command, MemoryArguments* memory, const std::string& context) {
  command->add_option("--ctx", memory->context, context)
      ->check(number_in(1, 1e15, "a number of tokens"));
  add_kv(command, &memory->kv);
  CLI::Option* stream = command->add_flag(
      "--stream", memory->stream,
      "Memory without an end: layers that see everything keep the first tokens and the last ones; "
      "--ctx is both together");
  command
      ->add_option("--sinks", memory->sinks,
                   "With --stream: first tokens that stay for ever (default 4)")
      ->needs(stream)
      ->check(number_in(0, 1e9, "a number of tokens"));
  command
      ->add_option("--window", memory->window,
                   "With --stream: last tokens that stay (default: --ctx less --sinks)")
      ->needs(stream)
      ->check(number_in(1, 1e9, "a number of tokens"));
}

void add_snapshots(CLI::App* command, MemoryArguments* memory) {
  command
      ->add_option("--save", memory->save,
                   "Write the session to FILE in the end, to go on from another day")
      ->type_name("FILE");
  command
      ->add_option("--resume", memory->resume,
                   "Go on from the session in FILE (same model and options)")
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
    if (CLI::detail::lexical_cast(value, bias->bias)) return "";
  }
  return "\"" + text + "\" is not ID=B, a token id and a number or -inf";
}

struct NumberFlag {
  const char* name;
  const char* what;
  std::optional<float> SamplingArguments::* value;
  double low, high;
  const char* range;
};

constexpr NumberFlag kNumberFlags[] = {
    {"--temp", "Temperature; 0: always the likeliest token (default 0.8)",
     &SamplingArguments::temperature, 0, 1e6, "a temperature of 0 or more"},
    {"--top-p", "Choose among the likeliest with this probability together; 1: all (default 0.95)",
     &SamplingArguments::top_p, 1e-6, 1, "a probability above 0, up to 1"},
    {"--min-p",
     "Choose among those at least P times as likely as the likeliest; 0: all (default 0.05)",
     &SamplingArguments::min_p, 0, 1, "a number from 0 to 1"},
    {"--typical",
     "Choose among the most typical with this probability together; 1: all (default 1)",
     &SamplingArguments::typical, 1e-6, 1, "a probability above 0, up to 1"},
    {"--repeat-penalty", "Divide the logits of tokens in the window by this; 1: off (default 1)",
     &SamplingArguments::repeat_penalty, 0.01, 100, "a number from 0.01 to 100"},
    {"--presence-penalty", "Take this from the logits of tokens in the window (default 0)",
     &SamplingArguments::presence_penalty, -100, 100, "a number from -100 to 100"},
    {"--frequency-penalty", "The same for each time the token is in the window (default 0)",
     &SamplingArguments::frequency_penalty, -100, 100, "a number from -100 to 100"},
};

// Defaults are named in the texts alone: a flag that was not given must not hide the file's own.
void add_sampling(CLI::App* command, SamplingArguments* sampling) {
  for (const NumberFlag& flag : kNumberFlags) {
    command->add_option(flag.name, sampling->*flag.value, flag.what)
        ->type_name("X")
        ->check(number_in(flag.low, flag.high, flag.range));
  }
  command
      ->add_option("--top-k", sampling->top_k, "Choose among the K likeliest; 0: all (default 40)")
      ->type_name("K")
      ->check(number_in(0, std::numeric_limits<int32_t>::max(), "a number of tokens"));
  command
      ->add_option("--repeat-window", sampling->repeat_window,
                   "Last tokens that the penalties look at; -1: all (default 64)")
      ->type_name("N")
      ->check(number_in(-1, std::numeric_limits<int32_t>::max(), "a number of tokens, or -1"));
  command
      ->add_option_function<std::vector<std::string>>(
          "--logit-bias",
          [sampling](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) {
              LogitBias bias{};
              const std::string wrong = parse_bias(text, &bias);
              if (!wrong.empty()) throw CLI::ValidationError("--logit-bias", wrong);
              sampling->logit_bias.push_back(bias);
            }
          },
          "Add B to the logit of token ID; -inf: never; may be given several times")
      ->type_name("ID=B")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--seed", sampling->seed, "Seed of the random choices")
      ->check(CLI::Validator(check_seed, "", ""))
      ->capture_default_str();
}

CLI::App* add_run(CLI::App* app, RunArguments* run) {
  CLI::App* command = add_command(app, "run", "Answer a prompt, or continue a text");
  add_model_to_run(command, &run->model);
  command->add_option("PROMPT", run->prompt,
                      "What to answer; \"-\", or no PROMPT and a pipe: standard input");
  command->add_option("--system", run->system, "System message in front of the prompt")
      ->type_name("TEXT");
  command->add_flag("--raw", run->raw, "Continue PROMPT as text, without the chat template");
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
  command
      ->add_option("-n,--max-tokens", run->generate.max_tokens,
                   "Longest answer in tokens; -1: until the context is full")
      ->capture_default_str()
      ->check(number_in(-1, 1e15, "a number of tokens, or -1"));
  add_memory(command, &run->memory,
             "Tokens of context (default: 4096, or what the model has if less)");
  add_snapshots(command, &run->memory);
  command
      ->add_flag("--pin-prompt", run->memory.pin_prompt,
                 "With --stream: the whole prompt stays for ever")
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
  command->add_flag("--jsonl", run->jsonl, "Print events as JSON, one a line");
  command->add_flag("-q,--quiet", run->quiet, "No progress and no timing on standard error");
  command->footer(footer(kRunFooter));
  return command;
}

void add_no_bos(CLI::App* command, bool* add_special) {
  command->add_flag_callback(
      "--no-bos", [add_special] { *add_special = false; },
      "Without the beginning and end tokens that the model asks for");
}

CLI::App* add_tokenize(CLI::App* app, TokenizeArguments* tokenize) {
  CLI::App* command = add_command(app, "tokenize", "Print the token ids of a text");
  add_model(command, &tokenize->model);
  command->add_option("TEXT", tokenize->text, "The text; \"-\" or nothing: standard input");
  add_no_bos(command, &tokenize->add_special);
  command->add_flag("--parse-special", tokenize->parse_special,
                    "Text that spells a control token becomes that token");
  command->footer(footer(kTokenizeFooter));
  return command;
}

CLI::App* add_score(CLI::App* app, ScoreArguments* score) {
  CLI::App* command =
      add_command(app, "score", "Print how well the model predicts each token of a text");
  add_model_to_run(command, &score->model);
  command->add_option("FILE", score->file, "File with the text; \"-\" or nothing: standard input");
  command->add_flag("--ids", score->ids,
                    "The input is a JSON array of token ids; implies --no-bos");
  add_no_bos(command, &score->add_special);
  command->add_option("--top", score->top, "Likeliest tokens to print for each position")
      ->capture_default_str()
      ->check(number_in(0, std::numeric_limits<int32_t>::max(), "a number of tokens"));
  add_memory(command, &score->memory,
             "Tokens of context (default: those of the text; with --stream 4096, or what the model "
             "has if less)");
  add_snapshots(command, &score->memory);
  command->footer(footer(kScoreFooter));
  return command;
}

CLI::App* add_embed(CLI::App* app, EmbedArguments* embed) {
  CLI::App* command = add_command(app, "embed", "Print the vectors of texts");
  add_model_to_run(command, &embed->model);
  CLI::Option* texts = command->add_option(
      "TEXT", embed->texts, "The texts; \"-\" or nothing: standard input, a text a line");
  command->add_option("--file", embed->file, "File with a text in each line, instead of TEXT")
      ->type_name("FILE")
      ->excludes(texts);
  command->add_flag("--json", embed->json, "Print an object a text instead of the vector alone");
  command->add_flag("--normalize", embed->normalize, "Make every vector 1 long (L2)");
  command->footer(footer(kEmbedFooter));
  return command;
}

CLI::App* add_show(CLI::App* app, ShowArguments* show) {
  CLI::App* command = add_command(app, "show", "Print what is in a model file");
  add_model_to_run(command, &show->model);
  add_target(command, &show->model);
  command->add_flag("--json", show->json, "Print JSON");
  command->add_flag("--sha256", show->sha256,
                    "Compute the sha256 where it is not known: reads the whole file");
  add_memory(command, &show->memory,
             "Tell the memory for this many tokens (default: 4096, or what the model has if less)");
  command->footer(footer(kShowFooter));
  return command;
}

CLI::App* add_list(CLI::App* app, ListArguments* list) {
  CLI::App* command = add_command(app, "list", "Print the models of this machine");
  command->add_flag("--json", list->json, "Print JSON");
  command->footer(footer(kListFooter));
  return command;
}

CLI::App* add_remove(CLI::App* app, RemoveArguments* remove) {
  CLI::App* command = add_command(app, "rm", "Remove models that culet pull has fetched");
  command->add_option("NAME", remove->names, "Name or path of a model in culet's cache folder")
      ->required();
  command->footer(footer(kRemoveFooter));
  return command;
}

CLI::App* add_pull(CLI::App* app, PullArguments* pull) {
  CLI::App* command = add_command(app, "pull", "Fetch models; nothing else uses the network");
  command
      ->add_option("NAME", pull->names,
                   "hf:org/repo[@revision][:quant], ollama:name[:tag], or a name of the catalogue")
      ->required();
  command->add_flag("-q,--quiet", pull->quiet, "No progress on standard error");
  command->footer(footer(kPullFooter));
  return command;
}

CLI::App* add_completion(CLI::App* app, std::string* shell) {
  CLI::App* command = add_command(app, "completion", "Print a script for completion in a shell");
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::Validator(
          [](std::string& name) {
            const auto script = completion_script(name);
            return script ? std::string() : script.error().message;
          },
          "", ""))
      ->type_name("bash|zsh|fish");
  command->footer(footer(kCompletionFooter));
  return command;
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
  int threads = 0;
  if (!CLI::detail::lexical_cast(value, threads) || threads < 1 || threads > kMaxThreads) {
    return fail(ErrorCode::kInvalidArgument,
                "CULET_THREADS is \"" + value + "\"; use a number from 1 to 1024, or unset it");
  }
  options->threads = threads;
  return {};
}

Result<void> read_environment(ModelOptions* options) {
  if (options->arch_dir.empty()) options->arch_dir = variable("CULET_ARCH_DIR");
  CULET_TRY_VOID(read_isa(options));
  CULET_TRY_VOID(read_fuse(options));
  return read_threads(options);
}

template <class T>
Result<Arguments> with_environment(T arguments) {
  CULET_TRY_VOID(read_environment(&arguments.model.options));
  return Arguments(std::move(arguments));
}

// ---------------------------------------------------------------- the whole

Result<RunArguments> check_run(RunArguments run) {
  if (run.generate.logprobs >= 0 && !run.jsonl) {
    return fail(ErrorCode::kInvalidArgument,
                "--logprobs needs --jsonl, which has a place for them; add it");
  }
  if (run.raw && run.system) {
    return fail(ErrorCode::kInvalidArgument,
                "--system needs the chat template, which --raw leaves out; drop one of them");
  }
  return run;
}

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
  const auto set = [](auto& value, const auto& given) { value = given.value_or(value); };
  set(defaults.temperature, temperature);
  set(defaults.top_k, top_k);
  set(defaults.top_p, top_p);
  set(defaults.min_p, min_p);
  set(defaults.typical_p, typical);
  set(defaults.repeat_penalty, repeat_penalty);
  set(defaults.presence_penalty, presence_penalty);
  set(defaults.frequency_penalty, frequency_penalty);
  set(defaults.repeat_last_n, repeat_window);
  defaults.seed = seed;
  defaults.logit_bias = logit_bias;
  return defaults;
}

namespace {

// Every command with the place of its arguments.
struct Commands {
  RunArguments run;
  TokenizeArguments tokenize;
  ScoreArguments score;
  EmbedArguments embed;
  ExplainArguments explain;
  BenchArguments bench;
  ArchArguments arch;
  ShowArguments show;
  ListArguments list;
  RemoveArguments remove;
  PullArguments pull;
  QuantizeArguments quantize;
  ConvertArguments convert;
  std::string shell;
  CLI::App app{std::string(kAbout), "culet"};

  Commands() {
    app.footer(footer(kFooter));
    app.set_version_flag("--version", "culet " + std::string(version()),
                         "Print the version and exit");
    app.require_subcommand(0, 1);
    app.get_formatter()->label("SUBCOMMAND", "COMMAND");
    add_run(&app, &run);
    add_tokenize(&app, &tokenize);
    add_score(&app, &score);
    add_embed(&app, &embed);
    add_explain(&app, &explain);
    add_bench(&app, &bench);
    add_arch(&app, &arch);
    add_show(&app, &show);
    add_list(&app, &list);
    add_remove(&app, &remove);
    add_pull(&app, &pull);
    add_quantize(&app, &quantize);
    add_convert(&app, &convert);
    add_completion(&app, &shell);
  }

  // Of the command that was parsed.
  Result<Arguments> arguments();

 private:
  void set_contexts();
};

// What a model is made ready for whose rotation follows the context: the longest session to come.
void Commands::set_contexts() {
  run.model.options.context = run.memory.context;
  score.model.options.context = score.memory.context;
  show.model.options.context = show.memory.context;
  if (explain.profile) explain.model.options.context = explain.prompt + explain.generated;
  int64_t deepest = 0;
  for (const int64_t depth : bench.depths) deepest = std::max(deepest, depth);
  bench.model.options.context = deepest + std::max(bench.prompt, bench.generated);
}

Result<Arguments> Commands::arguments() {
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) {
    std::string names;
    const auto all = app.get_subcommands([](const CLI::App*) { return true; });
    for (const CLI::App* command : all) {
      names += (command == all.front() ? "" : command == all.back() ? " or " : ", ");
      names += command->get_name();
    }
    return fail(ErrorCode::kInvalidArgument,
                "no command was given; use " + names + " (see culet --help)");
  }
  set_contexts();
  const std::string name = chosen.front()->get_name();
  if (name == "run") {
    CULET_TRY(run, check_run(std::move(run)));
    return with_environment(std::move(run));
  }
  if (name == "tokenize") return with_environment(std::move(tokenize));
  if (name == "score") return with_environment(std::move(score));
  if (name == "embed") return with_environment(std::move(embed));
  if (name == "explain") return with_environment(std::move(explain));
  if (name == "bench") return with_environment(std::move(bench));
  if (name == "arch") {
    if (arch.arch_dir.empty()) arch.arch_dir = variable("CULET_ARCH_DIR");
    return Arguments(std::move(arch));
  }
  if (name == "show") return with_environment(std::move(show));
  if (name == "list") return Arguments(list);
  if (name == "rm") return Arguments(std::move(remove));
  if (name == "pull") return Arguments(std::move(pull));
  if (name == "quantize") return with_environment(std::move(quantize));
  if (name == "convert") return with_environment(std::move(convert));
  CULET_TRY(std::string script, completion_script(shell));
  return Page{std::move(script)};
}

// What completion scripts and the build call; no part of the command line that people see.
std::optional<Arguments> internal_command(std::span<const char* const> words) {
  if (words.empty()) return std::nullopt;
  const std::string_view name = words.front();
  const auto rest = words.subspan(1);
  if (name == "__complete") {
    return CompleteArguments{{rest.begin(), rest.end()}, variable("CULET_ARCH_DIR")};
  }
  if (name == "__manual") {
    return Page{manual_page(command_reference(), version(), rest.empty() ? "" : rest.front())};
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

CommandEntry command_reference() { return read_command(Commands().app); }

Result<Arguments> parse_arguments(int argc, const char* const* argv) {
  if (argc > 1) {
    auto internal = internal_command({argv + 1, static_cast<size_t>(argc - 1)});
    if (internal) return std::move(*internal);
  }
  Commands commands;
  refuse_empty_names(&commands.app);
  try {
    commands.app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Page{commands.app.help()};
  } catch (const CLI::CallForVersion& page) {
    return Page{std::string(page.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    return usage_error(commands.app, error);
  }
  return commands.arguments();
}

}  // namespace culet::cli

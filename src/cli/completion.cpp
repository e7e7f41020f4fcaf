// Takes the words typed so far, gives what may come next.
//
// All knowledge is here, where the table of commands is; a script only carries words to the program
// and candidates back. It runs at each key press, so names of models come from folders alone: no
// model file is opened.
#include "cli/completion.h"

#include "cli/commands.h"
#include "culet/arch.h"
#include "culet/hub.h"

#include <algorithm>
#include <array>
#include <optional>

namespace culet::cli {
namespace {

constexpr std::string_view kPlainCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/:@+=-";

constexpr std::string_view kBash =
    R"script(# bash completion for culet, made by: culet completion bash
_culet() {
  # bash cuts words at : and =, which names of models have; put them together again.
  local -a words=()
  local rest=$COMP_LINE word i line cut
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if ((i > 0)) && [[ $rest != [[:space:]]* ]]; then
      words[${#words[@]}-1]+=$word
    else
      words+=("$word")
    fi
    rest=${rest#"${rest%%[![:space:]]*}"}
    rest=${rest#"$word"}
  done
  word=${words[${#words[@]}-1]}
  cut=${word%"${word##*[$COMP_WORDBREAKS]}"}
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      ':files'*)
        compopt -o filenames
        while IFS= read -r line; do COMPREPLY+=("$line"); done < <(
          compgen -f -X "!*${line#:files }" -- "${word##*=}"
          compgen -d -- "${word##*=}")
        ;;
      ':folders')
        compopt -o filenames
        while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -d -- "${word##*=}")
        ;;
      *)
        line=${line%%$'\t'*}
        COMPREPLY+=("${line#"$cut"}")
        ;;
    esac
  done < <("$1" __complete "${words[@]:1}" 2>/dev/null)
}
complete -F _culet culet
)script";

constexpr std::string_view kZsh = R"script(#compdef culet
# zsh completion for culet, made by: culet completion zsh
_culet() {
  local -a names
  local line files
  for line in "${(@f)$("${(Q)words[1]}" __complete "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}"; do
    case $line in
      '') ;;
      ':'*) files=$line ;;
      *) names+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
    esac
  done
  (( $#names )) && _describe -V 'culet' names
  case $files in
    ':folders') compset -P '*='; _files -/ ;;
    ':files') compset -P '*='; _files ;;
    ':files '*) compset -P '*='; _files -g "*${files#:files }(-.)" ;;
  esac
}
if [[ $funcstack[1] = _culet ]]; then
  _culet "$@"
else
  compdef _culet culet
fi
)script";

constexpr std::string_view kFish =
    R"script(# fish completion for culet, made by: culet completion fish
function __culet_complete
    set -l before (commandline -opc)
    set -l word (commandline -ct)
    set -l option (string match -r -- '^--[a-z0-9-]+=' $word)
    for line in ($before[1] __complete $before[2..-1] "$word" 2>/dev/null)
        switch $line
            case ':*'
                for path in (__fish_complete_path (string replace -- "$option" '' "$word"))
                    set -l name (string split -f 1 \t -- $path)
                    if string match -q -- '*/' $name
                        or string match -q -- "*"(string replace -r -- '^:files ?' '' $line) $name
                        echo -- "$option$name"
                    end
                end
            case '*'
                echo -- $line
        end
    end
end
complete -c culet -f -a '(__culet_complete)'
)script";

struct Shell {
  std::string_view name, script;
};
constexpr std::array<Shell, 3> kShells{{{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}}};

// What an argument or the value of an option may be, by the name that help shows for it.
struct Source {
  std::string_view command, name;  // command "": any
  KnownNames::Names KnownNames::* names;
  std::string_view files;  // the request to the shell, or ""
};
constexpr std::array<Source, 8> kSources{{
    {"rm", "NAME", &KnownNames::own_models, ":files .gguf"},
    {"pull", "NAME", &KnownNames::models_to_pull, ""},
    {"check", "FILE", &KnownNames::architectures, ":files .arch"},
    {"diff", "FILE", &KnownNames::architectures, ":files .arch"},
    {"", "MODEL", &KnownNames::models, ":files .gguf"},
    {"", "OUT", nullptr, ":files .gguf"},
    {"", "FILE", nullptr, ":files"},
    {"", "DIR", nullptr, ":folders"},
}};

class Candidates {
 public:
  explicit Candidates(std::string_view typed) : typed_(typed) {}

  void add(std::string_view word, std::string_view what) {
    const bool plain = word.find_first_not_of(kPlainCharacters) == std::string_view::npos;
    if (!plain || !word.starts_with(typed_)) return;
    lines_.append(word).append("\t").append(what).append("\n");
  }
  void ask(std::string_view files) {
    if (!files.empty()) files_ = std::string(files) + "\n";
  }
  std::string text() const { return lines_ + files_; }

 private:
  std::string_view typed_;
  std::string lines_, files_;
};

// Where a command line stands after some words.
struct Place {
  std::vector<const CommandEntry*> path;  // the commands named so far, culet first
  std::vector<const OptionEntry*> given;
  const OptionEntry* waiting = nullptr;  // an option whose value comes next
  size_t arguments = 0;
  bool no_more_options = false;

  const CommandEntry& command() const { return *path.back(); }
};

bool has_name(const OptionEntry& option, std::string_view name) {
  return std::find(option.names.begin(), option.names.end(), name) != option.names.end();
}

const OptionEntry* find_option(const CommandEntry& command, std::string_view name) {
  for (const OptionEntry& option : command.options) {
    if (has_name(option, name)) return &option;
  }
  return nullptr;
}

const CommandEntry* find_command(const CommandEntry& in, std::string_view name) {
  for (const CommandEntry& command : in.commands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

void read_option_word(const std::string& word, Place* place) {
  const size_t equals = word.find('=');
  const OptionEntry* option = find_option(place->command(), word.substr(0, equals));
  if (!option) return;
  place->given.push_back(option);
  if (!option->value.empty() && equals == std::string::npos) place->waiting = option;
}

Place read_words(const CommandEntry& culet, std::span<const std::string> words) {
  Place place{.path = {&culet}, .given = {}};
  for (const std::string& word : words) {
    if (place.waiting) {
      place.waiting = nullptr;
    } else if (!place.no_more_options && word == "--") {
      place.no_more_options = true;
    } else if (!place.no_more_options && word.size() > 1 && word.front() == '-') {
      read_option_word(word, &place);
    } else if (const CommandEntry* command = find_command(place.command(), word)) {
      place.path.push_back(command);
    } else {
      ++place.arguments;
    }
  }
  return place;
}

// Candidates for a value that help calls `kind`; `before` stands in front of each ("--kv=").
void add_values(const Place& place, std::string_view kind, const std::string& before,
                const KnownNames& known, Candidates* out) {
  for (size_t at = 0; kind.find('|') != std::string_view::npos && at < kind.size();) {
    const size_t end = std::min(kind.find('|', at), kind.size());
    out->add(before + std::string(kind.substr(at, end - at)), "");
    at = end + 1;
  }
  for (const Source& source : kSources) {
    if (source.name != kind || (!source.command.empty() && source.command != place.command().name))
      continue;
    if (source.names) {
      for (const std::string& name : (known.*source.names)()) out->add(before + name, "");
    }
    return out->ask(source.files);
  }
}

void add_options(const Place& place, Candidates* out) {
  for (const OptionEntry& option : place.command().options) {
    const bool given =
        std::find(place.given.begin(), place.given.end(), &option) != place.given.end();
    if (given && !option.repeats) continue;
    for (const std::string& name : option.names) out->add(name, option.what);
  }
}

void add_argument(const Place& place, const KnownNames& known, Candidates* out) {
  const CommandEntry& command = place.command();
  if (command.arguments.empty()) return;
  const size_t last = command.arguments.size() - 1;
  if (place.arguments > last && !command.arguments[last].repeats) return;
  const OptionEntry& argument = command.arguments[std::min(place.arguments, last)];
  const bool choices = argument.value.find('|') != std::string::npos;
  add_values(place, choices ? argument.value : argument.names.front(), "", known, out);
}

}  // namespace

std::string complete(const CommandEntry& culet, std::span<const std::string> words,
                     const KnownNames& known) {
  if (words.empty()) return "";
  const std::string& typed = words.back();
  const Place place = read_words(culet, words.first(words.size() - 1));
  Candidates out(typed);
  const size_t equals = typed.find('=');
  if (place.waiting) {
    add_values(place, place.waiting->value, "", known, &out);
  } else if (!place.no_more_options && typed.starts_with('-')) {
    const OptionEntry* option = find_option(place.command(), typed.substr(0, equals));
    if (equals == std::string::npos) {
      add_options(place, &out);
    } else if (option) {
      add_values(place, option->value, typed.substr(0, equals + 1), known, &out);
    }
  } else if (place.arguments == 0 && !place.command().commands.empty()) {
    for (const CommandEntry& command : place.command().commands) {
      out.add(command.name, command.what);
    }
  } else {
    add_argument(place, known, &out);
  }
  return out.text();
}

Result<int> complete_command(const CompleteArguments& arguments, Output& out) {
  const KnownNames known{
      .models = [] { return list_model_names().here; },
      .own_models = [] { return list_model_names().owned; },
      .models_to_pull = [] { return list_model_names().not_here; },
      .architectures =
          [&arguments] {
            std::vector<std::string> names;
            const auto entries = list_architectures(arguments.arch_dir);
            if (!entries) return names;
            for (const ArchEntry& entry : *entries) names.push_back(entry.name);
            return names;
          },
  };
  out.write(complete(command_reference(), arguments.words, known));
  return kExitOk;
}

Result<std::string> completion_script(std::string_view shell) {
  for (const Shell& known : kShells) {
    if (known.name == shell) return std::string(known.script);
  }
  return fail(ErrorCode::kNotFound, "there is no completion for the shell \"" + std::string(shell) +
                                        "\"; use bash, zsh or fish");
}

}  // namespace culet::cli

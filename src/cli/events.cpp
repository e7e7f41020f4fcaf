#include "cli/events.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <charconv>
#include <type_traits>

namespace culet::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kReasons{"stop", "length", "context", "cancelled"};
constexpr std::array<std::string_view, 8> kCodes{"invalid_argument", "not_found", "unsupported",
                                                 "corrupt",          "exhausted", "io",
                                                 "cancelled",        "numeric"};

std::string line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json to_json(const Started& started, const Model&) {
  return {{"event", "started"}, {"prompt_tokens", started.prompt_tokens}};
}

Json to_json(const PromptProgress& progress, const Model&) {
  return {{"event", "progress"}, {"done", progress.done}, {"all", progress.total}};
}

Json to_json(const TextDelta& delta, const Model& model) {
  const Json id = delta.id < 0 ? Json() : Json(delta.id);
  Json event{{"event", "text"}, {"text", delta.text}, {"id", id}};
  if (!delta.logprob) return event;
  Json top = Json::array();
  for (const TokenLogprob& candidate : delta.top) {
    top.push_back({{"id", candidate.id},
                   {"text", model.vocabulary().piece(candidate.id)},
                   {"logprob", shortest(candidate.logprob)}});
  }
  event.update({{"piece", model.vocabulary().piece(delta.id)},
                {"logprob", shortest(*delta.logprob)},
                {"top", top}});
  return event;
}

Json to_json(const Finished& finished, const Model&) {
  Json event{{"event", "finished"}, {"reason", reason_name(finished.reason)}};
  if (!finished.stop.empty()) event["stop"] = finished.stop;
  event["usage"] = {{"prompt_tokens", finished.cost.prompt_tokens},
                    {"generated_tokens", finished.cost.generated_tokens},
                    {"prompt_seconds", finished.cost.prompt_seconds},
                    {"generate_seconds", finished.cost.generate_seconds}};
  return event;
}

// Not shown: an error has a line of its own (error_line), and a token a text event.
Json to_json(const Appended&, const Model&) { return {}; }
Json to_json(const Failed&, const Model&) { return {}; }

}  // namespace

double shortest(float x) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, x).ptr;
  double value = 0;
  std::from_chars(digits, end, value);
  return value;
}

std::string event_line(const Event& event, const Model& model) {
  const Json json = std::visit([&](const auto& e) { return to_json(e, model); }, event);
  return json.is_null() ? std::string() : line(json);
}

std::string error_line(const Error& error) {
  return line({{"event", "error"},
               {"code", kCodes.at(static_cast<size_t>(error.code))},
               {"message", error.message}});
}

std::string_view reason_name(FinishReason reason) {
  return kReasons.at(static_cast<size_t>(reason));
}

}  // namespace culet::cli

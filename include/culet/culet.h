// culet: runs open language models on this machine. Includes the whole inference API.
//
//   auto model = culet::Model::load("model.gguf", {});
//   auto session = culet::Session::make(*model, {});
//   const culet::Message messages[] = {{"user", "Hello"}};
//   auto prompt = culet::render_chat(**model, messages, {});
//   culet::generate(**session, prompt->tokens, {},
//                   [](const culet::Event& event) { ...; return true; });
//
// Calls that can fail return Result<T>: a value, or an Error with a sentence (culet/result.h).
// Nothing throws, and there is no global state. examples/ has whole programs with their
// CMakeLists.txt. docs/glossary.md maps the terms to those of llama.cpp and vLLM. Not included:
// making model files (culet/convert.h), reports on architecture files (culet/arch.h), and names of
// models, stores and downloads (culet/hub.h), which are in the second library, culet::hub.
#pragma once

#include "culet/chat.h"
#include "culet/draft.h"
#include "culet/embed.h"
#include "culet/generate.h"
#include "culet/logprobs.h"
#include "culet/measure.h"
#include "culet/model.h"
#include "culet/prefix_cache.h"
#include "culet/sampler.h"
#include "culet/scheduler.h"
#include "culet/session.h"
#include "culet/vocabulary.h"

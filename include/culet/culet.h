// culet: runs open language models on this machine. Includes the whole inference API.
//
//   auto model = culet::Model::load("model.gguf", {});
//   auto session = culet::Session::make(*model, {});
//   const culet::Message messages[] = {{"user", "Hello"}};
//   auto prompt = culet::render_chat(**model, messages, {});
//   culet::generate(**session, prompt->tokens, {}, [](const culet::Event& e) { ...; return true;
//   });
//
// examples/ has whole programs with their CMakeLists.txt. Nothing here throws or keeps global
// state. Names of models, stores and downloads are in culet/hub.h, a library of its own
// (culet::hub).
#pragma once

#include "culet/chat.h"
#include "culet/draft.h"
#include "culet/embed.h"
#include "culet/generate.h"
#include "culet/logprobs.h"
#include "culet/measure.h"
#include "culet/model.h"
#include "culet/sampler.h"
#include "culet/scheduler.h"
#include "culet/session.h"
#include "culet/vocabulary.h"

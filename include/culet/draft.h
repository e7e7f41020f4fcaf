// Draft models for speculative decoding: small models that propose tokens; a larger model, the
// target, accepts or rejects them. Sampler::verify (culet/sampler.h) decides.
#pragma once

#include "culet/session.h"

#include <span>
#include <vector>

namespace culet {

struct Draft {
  std::vector<float> logits;  // raw, [vocabulary size]
  std::vector<float> hidden;  // for the next step, [target's hidden size]
};

// One step of a draft model: the logits after `token`, which would follow the session's tokens.
//
// `hidden`, [target's hidden size]: in the first step, the target's hidden values
// (AppendItem::on_hidden) of the session's last token, from whose logits `token` was drawn. In
// later steps, Draft::hidden of the step before. So K calls propose K tokens, and the session does
// not change. All steps are computed at the position after the session's last token, as the
// published draft models were trained. Then append [token, proposals...] with AppendItem::on_logits
// to see which proposals are accepted, and with AppendItem::on_hidden to get the values for the
// next round.
//
// The bits depend on the draft model, the session and the arguments alone. Threads: several drafts
// of one session may be computed at once. Errors before any work: kUnsupported (not a draft model,
// or a stream that it cannot follow), kInvalidArgument (a session of another model than the target,
// or without tokens; a token outside the vocabulary; hidden values of another size). Later:
// kNumeric.
Result<Draft> draft(const Model& draft_model, const Session& session, Token token,
                    std::span<const float> hidden);

}  // namespace culet

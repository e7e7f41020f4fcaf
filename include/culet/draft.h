// Draft models: small models that propose tokens for a larger one, their target, to accept or to
// reject (speculative decoding).
#pragma once

#include "culet/session.h"

#include <span>
#include <vector>

namespace culet {

struct Draft {
  std::vector<float> logits;  // raw, [vocabulary size]
  std::vector<float> hidden;  // for the next step, [target's hidden size]
};

// One step of a draft model: what may follow `token`, which in turn may follow the session's
// tokens.
//
// `hidden`, [target's hidden size]: for the first step the target's own values
// (AppendItem::on_hidden) of the session's last token, from whose logits `token` was drawn; after
// that Draft::hidden of the step before. So K tokens are proposed by K calls while the session
// stays as it is. All of them are computed at the position behind its last token, as the published
// draft models were trained. Appending [token, proposals...] with AppendItem::on_logits then tells
// which proposals hold, and AppendItem::on_hidden has the values to go on from.
//
// Nothing of the session changes. The bits depend on the draft model, the session and the arguments
// alone. Threads: several drafts of one session may be computed at once.
// Errors, before any work: kUnsupported (not a draft model, or a stream that it cannot follow),
// kInvalidArgument (a session of another model than the target, or without tokens; a token outside
// the vocabulary; hidden values of another size); later: kNumeric.
Result<Draft> draft(const Model& draft_model, const Session& session, Token token,
                    std::span<const float> hidden);

}  // namespace culet

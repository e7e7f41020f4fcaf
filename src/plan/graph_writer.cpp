#include "plan/graph_writer.h"

#include "plan/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace culet::plan {
namespace {

constexpr size_t kMaxRopes = 1024;

}  // namespace

GraphWriter::GraphWriter(Hyperparameters& hparams, const format::GgufFile* target_file)
    : hparams_(hparams),
      arch_(hparams.arch()),
      tensors_(hparams.model(), target_file),
      used_(hparams.model().tensors().size(), false) {}

tl::unexpected<Error> GraphWriter::error(SourceLocation p, std::string_view message,
                                         ErrorCode code) const {
  return layer_error(hparams_, layer_, p, message, code);
}

Shape GraphWriter::shape(ValueId v) const {
  const Value& x = plan_.values[static_cast<size_t>(v)];
  return Shape{x.dims, x.rank};
}

const format::TensorInfo* GraphWriter::info(TensorId t) const {
  return t == kNone ? nullptr : &tensors_.at(t);
}

void GraphWriter::use(TensorId t) {
  if (t != kNone && !Tensors::of_target(t)) used_[static_cast<size_t>(t)] = true;
}

Op GraphWriter::op(OpKind kind, SourceLocation p) const {
  return make_op(kind, layer_, arch_.files[static_cast<size_t>(p.file)].first_line + p.line);
}

ValueId GraphWriter::new_value(const Shape& s, TokenSet rows) {
  Value v;
  v.rows = rows;
  v.dims = s.dims, v.rank = s.rank, v.width = static_cast<int32_t>(s.width());
  plan_.values.push_back(v);
  return static_cast<ValueId>(plan_.values.size()) - 1;
}

ValueId GraphWriter::add(Op op, const Shape& result, TokenSet rows) {
  const ValueId out = new_value(result, rows);
  op.out = {out};
  plan_.ops.push_back(std::move(op));
  return out;
}

Result<std::vector<ValueId>> GraphWriter::emit(Op op, ShapeCall call, SourceLocation p) {
  for (ValueId v : op.in) call.in.push_back(shape(v)), call.in_rows.push_back(at(v).rows);
  for (TensorId t : op.weights) {
    use(t);
    call.weights.push_back(info(t));
  }
  if (const auto r = routes_.find(op.in.empty() ? kNone : op.in.back()); r != routes_.end())
    call.routed = r->second;
  call.op = &op;
  if (auto ok = apply_shape_rule(&call); !ok) return error(p, ok.error().message, ok.error().code);
  std::vector<ValueId> out;
  out.reserve(call.out.size());
  for (const Shape& s : call.out) out.push_back(new_value(s, call.out_rows));
  if (op.kind == OpKind::route) routes_[out[0]] = at(op.in[0]).width;
  op.out = out;
  plan_.ops.push_back(std::move(op));
  return out;
}

Result<int32_t> GraphWriter::rope(const RopeSpec& spec, SourceLocation p) {
  std::vector<RopeSpec>& ropes = plan_.ropes;
  const auto found = std::find(ropes.begin(), ropes.end(), spec);
  const auto index = static_cast<int32_t>(found - ropes.begin());
  if (found != ropes.end()) return index;
  if (ropes.size() >= kMaxRopes)
    return error(p, fmt::format("more than {} different ropes in one model", kMaxRopes));
  ropes.push_back(spec);
  return index;
}

void GraphWriter::note_context(int64_t uses) {
  if (hparams_.context_uses() != uses) plan_.no_stream = why_no_stream(hparams_);
}

}  // namespace culet::plan

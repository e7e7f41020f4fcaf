// The tensors of a plan as the kernels want them.
//
//   products   (linear, gated_linear, linear_add, grouped_linear, experts): repacked into one
//              anonymous mapping; the source pages are then given back, so the resident size stays
//              near the file's. Or, without repacking, left in the file's mapping, which other
//              processes share; products then pack a few outputs at a time, to the same bits.
//   gathered   (embed, gather): read row by row from the file's mapping, never copied. A tied
//              embedding is both: repacked for its products, and of its mapping only the rows that
//              are asked for. Around the rows of gather, whose table may be as large as all the
//              rest, nothing is read ahead. Pages of rows that were read are given back from time
//              to time (give_back), so that an endless text does not gather the whole table.
//   vectors    (norm weights, biases, factors, arithmetic operands): converted once to float32.
// Immutable after load().
#pragma once

#include "backend/cpu/region.h"
#include "base/thread_pool.h"
#include "culet/result.h"
#include "kernels/kernels.h"
#include "plan/plan.h"

#include <compare>
#include <functional>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

namespace culet::backend {

class Weights {
 public:
  using Progress = std::function<bool(uint64_t, uint64_t)>;
  // Errors: kUnsupported (a type that cannot be packed or read, by name), kExhausted, kCorrupt (the
  // tensor's bytes are not there).
  static Result<Weights> load(const plan::Plan& plan, const plan::Tensors& tensors,
                              base::ThreadPool& pool, bool repack, const Progress& progress);

  // Tensors of the plan in the role that load() saw; kNone gives nullptr. A matrix that was not
  // repacked has no data: its source() has. A tensor of experts, {in, out, experts}, is one matrix
  // behind the other, matrix() the first of them; halves: each expert's is two of out / 2 rows.
  const kernels::PackedMatrix* matrix(plan::TensorId id, bool halves = false) const;
  const std::byte* source(plan::TensorId id) const;
  const float* vector(plan::TensorId id) const;
  int64_t vector_size(plan::TensorId id) const;
  // Unmaps the pages of looked-up rows of the model's file; the system's cache keeps them for the
  // next time.
  void give_back(const format::GgufFile& file) const;
  uint64_t packed_bytes() const { return packed_.size(); }

  // load()'s errors of the kind kUnsupported, without doing anything else.
  static Result<void> check(const plan::Plan& plan, const plan::Tensors& tensors);
  // What load() will need, without doing it.
  struct Sizes {
    uint64_t packed = 0;     // the repacked copy
    uint64_t converted = 0;  // vectors as float32
    uint64_t mapped = 0;     // of the model's file, read while it runs
  };
  static Sizes sizes(const plan::Plan& plan, const plan::Tensors& tensors, bool repack);

 private:
  struct Matrices {  // how products read a tensor
    plan::TensorId id;
    bool halves;
    auto operator<=>(const Matrices&) const = default;
  };
  struct Roles;
  static Roles roles_of(const plan::Plan& plan);
  Result<void> pack(const std::vector<Matrices>& all, const plan::Tensors& tensors,
                    base::ThreadPool& pool, const Progress& progress);
  Result<void> leave_mapped(const std::vector<Matrices>& all, const plan::Tensors& tensors);
  Result<void> convert(plan::TensorId id, const plan::Tensors& tensors);

  Region packed_;
  std::map<Matrices, kernels::PackedMatrix> matrices_;
  std::unordered_map<plan::TensorId, const std::byte*> sources_;
  std::unordered_map<plan::TensorId, std::vector<float>> vectors_;
  std::vector<std::span<const std::byte>> looked_up_;  // tables that only look-ups read
};

// What an op does with its i-th weight.
enum class WeightRole : uint8_t { kProduct, kGathered, kVector };
WeightRole weight_role(plan::OpKind kind, size_t i);
// Whether it reads the tensor's matrices as two halves each: experts' gate and up in one tensor.
bool reads_halves(plan::OpKind kind, size_t i);

}  // namespace culet::backend

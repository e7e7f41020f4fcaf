// The passes between the graph and the finished plan, in the order compile() runs them.
#pragma once

#include "plan/plan.h"

namespace culet::plan {

// Gives every attend over a global cache its second query: the first one's ops again, with ropes at
// the sink position; keys are never rotated again. Such a rope
// does nothing for rows of sessions that do not stream.
void add_sink_queries(Plan* plan);

// Inserts select_rows behind the last write to a cache or state: rows whose outputs nobody wants
// stop there.
void select_rows(Plan* plan);

// Inserts quantize before products with integer weights, once a value.
void insert_quantize(Plan* plan, const Tensors& tensors);

// Replaces known runs of ops by fused ones that do the same roundings in the same order. The table
// of patterns is in fuse.cpp. Returns how many runs were fused.
int fuse(Plan* plan);

// Removes ops whose results nobody reads (split parts, values an override left over).
void remove_dead(Plan* plan);

// Sets prologue, layers and epilogue ranges, then gives every value its place in the arena.
void assign(Plan* plan);

// Checks the promises between the passes; aborts on a broken one.
void verify(const Plan& plan);

}  // namespace culet::plan

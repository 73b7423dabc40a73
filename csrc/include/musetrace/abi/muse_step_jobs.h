// The jobs of the small launches of a decode step on a GPU: the tree of guesses, its embedding, accepting, and the
// accepted rows of the KV cache.
#pragma once

#include "musetrace/abi/job.h"

namespace musetrace::abi {

// clang-format off
//      name    first last  stamping warps
#define MUSETRACE_MUSE_STEP_ROLES(ROLE) \
    ROLE(worker, 0,   11,   1u << 0)

//      name               op      kind     role    awaits
#define MUSETRACE_MUSE_STEP_JOBS(JOB)                                           \
    JOB(tree_topk,         tree,   Compute, worker, none)                       \
    JOB(tree_send,         tree,   Send,    worker, none)                       \
    JOB(tree_wait_ranks,   tree,   Wait,    worker, tree_send,   1, kFromRanks) \
    JOB(tree_merge,        tree,   Compute, worker, none)                       \
    JOB(tree_build,        tree,   Compute, worker, none)                       \
    JOB(embed_rows,        embed,  Compute, worker, none)                       \
    JOB(accept_argmax,     accept, Compute, worker, none)                       \
    JOB(accept_send,       accept, Send,    worker, none)                       \
    JOB(accept_wait_ranks, accept, Wait,    worker, accept_send, 1, kFromRanks) \
    JOB(accept_choose,     accept, Compute, worker, none)                       \
    JOB(accept_walk,       accept, Compute, worker, none)                       \
    JOB(accept_keep_kv,    accept, Send,    worker, none)
// clang-format on

MUSETRACE_JOB_TABLE(MuseStep, "muse_step", 12, MUSETRACE_MUSE_STEP_ROLES, MUSETRACE_MUSE_STEP_JOBS);
// One stamping warp with one register.
static_assert(kSlotMap<MuseStep>.total == 32);

}  // namespace musetrace::abi

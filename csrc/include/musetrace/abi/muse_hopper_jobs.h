// The jobs of a Muse Spark Open layer launch on a Hopper GPU. The same operations and stops as muse_layer_jobs.h; a
// list of its own, because the ways differ: here many blocks share a row, so sums of squares, norms and split products
// take hops between the blocks that the host device has not.
//
// Warps 1 and 2 bring expert rows together, and 4 to 11 move in step; the first of each four stamps.
#pragma once

#include "musetrace/abi/job.h"

namespace musetrace::abi {

// clang-format off
//      name     first last  stamping warps
#define MUSETRACE_MUSE_HOPPER_ROLES(ROLE)            \
    ROLE(loader, 0,    0,    1u << 0)                \
    ROLE(input,  1,    2,    1u << 1)                \
    ROLE(sender, 3,    3,    1u << 3)                \
    ROLE(group,  4,    11,   1u << 4 | 1u << 8)

//      name                   op         kind      role    awaits
#define MUSETRACE_MUSE_HOPPER_JOBS(JOB)                                                        \
    JOB(exchange_reset,        exchange,  Sync,     sender, none)                              \
    JOB(attention_prefetch,    attention, Prefetch, group,  none)                              \
    JOB(attention_compute,     attention, Compute,  group,  none)                              \
    JOB(attention_wait_splits, attention, Wait,     group,  attention_compute,  1, kFromRank)  \
    JOB(attention_merge,       attention, Compute,  group,  none)                              \
    JOB(o_proj_load,           o_proj,    Load,     loader, none)                              \
    JOB(o_proj_wait_heads,     o_proj,    Wait,     group,  attention_merge,    1, kFromRank)  \
    JOB(o_proj_wait_weights,   o_proj,    Wait,     group,  o_proj_load,        1, kFromBlock) \
    JOB(o_proj_compute,        o_proj,    Compute,  group,  none)                              \
    JOB(o_proj_wait_output,    o_proj,    Wait,     sender, o_proj_compute,     1, kFromBlock) \
    JOB(o_proj_send,           o_proj,    Send,     sender, none)                              \
    JOB(stop1_wait_ranks,      stop1,     Wait,     group,  o_proj_send,        1, kFromRanks) \
    JOB(stop1_sum,             stop1,     Recv,     group,  none)                              \
    JOB(stop1_wait_rows,       stop1,     Wait,     group,  stop1_sum,          1, kFromRank)  \
    JOB(stop1_norm,            stop1,     Compute,  group,  none)                              \
    JOB(pooler_load,           pooler,    Load,     loader, none)                              \
    JOB(pooler_wait_input,     pooler,    Wait,     group,  stop1_norm,         1, kFromRank)  \
    JOB(pooler_wait_weights,   pooler,    Wait,     group,  pooler_load,        1, kFromBlock) \
    JOB(pooler_compute,        pooler,    Compute,  group,  none)                              \
    JOB(router_load,           router,    Load,     loader, none)                              \
    JOB(router_wait_weights,   router,    Wait,     group,  router_load,        1, kFromBlock) \
    JOB(router_compute,        router,    Compute,  group,  none)                              \
    JOB(router_wait_slices,    router,    Wait,     group,  router_compute,     1, kFromRank)  \
    JOB(router_wait_output,    router,    Wait,     sender, router_wait_slices, 1, kFromBlock) \
    JOB(router_send,           router,    Send,     sender, none)                              \
    JOB(stop2_wait_ranks,      stop2,     Wait,     group,  router_send,        1, kFromRanks) \
    JOB(stop2_norm,            stop2,     Compute,  group,  none)                              \
    JOB(stop2_wait_logits,     stop2,     Wait,     group,  router_send,        1, kFromRanks) \
    JOB(stop2_topk,            stop2,     Compute,  group,  none)                              \
    JOB(gemm1_wait_tiles,      gemm1,     Wait,     loader, stop2_topk,         1, kFromBlock) \
    JOB(gemm1_load,            gemm1,     Load,     loader, none)                              \
    JOB(gemm1_load_rows,       gemm1,     Load,     input,  none)                              \
    JOB(gemm1_wait_input,      gemm1,     Wait,     group,  stop2_norm,         1, kFromRank)  \
    JOB(gemm1_wait_weights,    gemm1,     Wait,     group,  gemm1_load,         1, kFromBlock) \
    JOB(gemm1_compute,         gemm1,     Compute,  group,  none)                              \
    JOB(gemm1_wait_sums,       gemm1,     Wait,     sender, gemm1_compute,      1, kFromBlock) \
    JOB(gemm1_send,            gemm1,     Send,     sender, none)                              \
    JOB(stop3_wait_ranks,      stop3,     Wait,     input,  gemm1_send,         1, kFromRanks) \
    JOB(gemm2_load,            gemm2,     Load,     loader, none)                              \
    JOB(gemm2_load_rows,       gemm2,     Load,     input,  none)                              \
    JOB(gemm2_wait_input,      gemm2,     Wait,     group,  gemm2_load_rows,    1, kFromBlock) \
    JOB(gemm2_wait_weights,    gemm2,     Wait,     group,  gemm2_load,         1, kFromBlock) \
    JOB(gemm2_compute,         gemm2,     Compute,  group,  none)                              \
    JOB(gemm2_wait_sums,       gemm2,     Wait,     sender, gemm2_compute,      1, kFromBlock) \
    JOB(gemm2_send,            gemm2,     Send,     sender, none)                              \
    JOB(stop4_wait_ranks,      stop4,     Wait,     group,  gemm2_send,         1, kFromRanks) \
    JOB(stop4_combine,         stop4,     Compute,  group,  none)                              \
    JOB(unpooler_load,         unpooler,  Load,     loader, none)                              \
    JOB(unpooler_wait_input,   unpooler,  Wait,     group,  stop4_combine,      1, kFromRank)  \
    JOB(unpooler_wait_weights, unpooler,  Wait,     group,  unpooler_load,      1, kFromBlock) \
    JOB(unpooler_compute,      unpooler,  Compute,  group,  none)                              \
    JOB(unpooler_wait_output,  unpooler,  Wait,     sender, unpooler_compute,   1, kFromBlock) \
    JOB(unpooler_send,         unpooler,  Send,     sender, none)                              \
    JOB(stop5_wait_ranks,      stop5,     Wait,     group,  unpooler_send,      1, kFromRanks) \
    JOB(stop5_sum,             stop5,     Recv,     group,  none)                              \
    JOB(stop5_wait_rows,       stop5,     Wait,     group,  stop5_sum,          1, kFromRank)  \
    JOB(stop5_norm,            stop5,     Compute,  group,  none)                              \
    JOB(entry_wait_ranks,      entry,     Wait,     group,  exchange_reset,     1, kFromRanks) \
    JOB(entry_sum,             entry,     Compute,  group,  none)                              \
    JOB(entry_wait_rows,       entry,     Wait,     group,  entry_sum,          1, kFromRank)  \
    JOB(entry_norm,            entry,     Compute,  group,  none)                              \
    JOB(qkv_load,              qkv,       Load,     loader, none)                              \
    JOB(qkv_wait_input,        qkv,       Wait,     group,  stop5_norm,         1, kFromRank)  \
    JOB(qkv_wait_weights,      qkv,       Wait,     group,  qkv_load,           1, kFromBlock) \
    JOB(qkv_compute,           qkv,       Compute,  group,  none)                              \
    JOB(qkv_wait_slices,       qkv,       Wait,     group,  qkv_compute,        1, kFromRank)  \
    JOB(qkv_rope,              qkv,       Compute,  group,  none)                              \
    JOB(lm_head_load,          lm_head,   Load,     loader, none)                              \
    JOB(lm_head_load_input,    lm_head,   Load,     group,  none)                              \
    JOB(lm_head_wait_weights,  lm_head,   Wait,     group,  lm_head_load,       1, kFromBlock) \
    JOB(lm_head_compute,       lm_head,   Compute,  group,  none)
// clang-format on

MUSETRACE_JOB_TABLE(MuseHopper, "muse_hopper", 12, MUSETRACE_MUSE_HOPPER_ROLES, MUSETRACE_MUSE_HOPPER_JOBS);
// Three single warps with one register each, two stamping group warps with three: 3 * 32 + 2 * 96.
static_assert(kSlotMap<MuseHopper>.total == 288);

}  // namespace musetrace::abi

// The jobs of a draft launch on a Hopper GPU: of the context launch (fc, context, the first qkv) and of a draft layer's
// (attention to the next qkv). Roles are those of muse_hopper_jobs.h.
#pragma once

#include "musetrace/abi/job.h"

namespace musetrace::abi {

// clang-format off
//      name     first last  stamping warps
#define MUSETRACE_MUSE_DRAFT_ROLES(ROLE)             \
    ROLE(loader, 0,    0,    1u << 0)                \
    ROLE(warmer, 1,    2,    0)                      \
    ROLE(sender, 3,    3,    1u << 3)                \
    ROLE(group,  4,    11,   1u << 4 | 1u << 8)

//      name                   op         kind      role    awaits
#define MUSETRACE_MUSE_DRAFT_JOBS(JOB)                                                         \
    JOB(exchange_reset,        exchange,  Sync,     sender, none)                              \
    JOB(embed_norm,            embed,     Compute,  group,  none)                              \
    JOB(fc_load,               fc,        Load,     loader, none)                              \
    JOB(fc_load_input,         fc,        Load,     group,  none)                              \
    JOB(fc_wait_weights,       fc,        Wait,     group,  fc_load,            1, kFromBlock) \
    JOB(fc_compute,            fc,        Compute,  group,  none)                              \
    JOB(fc_wait_output,        fc,        Wait,     sender, fc_compute,         1, kFromBlock) \
    JOB(fc_send,               fc,        Send,     sender, none)                              \
    JOB(fc_wait_ranks,         fc,        Wait,     group,  fc_send,            1, kFromRanks) \
    JOB(fc_sum,                fc,        Recv,     group,  none)                              \
    JOB(fc_wait_rows,          fc,        Wait,     group,  fc_sum,             1, kFromRank)  \
    JOB(fc_norm,               fc,        Compute,  group,  none)                              \
    JOB(context_load,          context,   Load,     loader, none)                              \
    JOB(context_wait_input,    context,   Wait,     group,  fc_norm,            1, kFromRank)  \
    JOB(context_wait_weights,  context,   Wait,     group,  context_load,       1, kFromBlock) \
    JOB(context_compute,       context,   Compute,  group,  none)                              \
    JOB(context_wait_slices,   context,   Wait,     group,  context_compute,    1, kFromRank)  \
    JOB(context_rope,          context,   Compute,  group,  none)                              \
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
    JOB(gate_up_load,          gate_up,   Load,     loader, none)                              \
    JOB(gate_up_wait_input,    gate_up,   Wait,     group,  stop1_norm,         1, kFromRank)  \
    JOB(gate_up_wait_weights,  gate_up,   Wait,     group,  gate_up_load,       1, kFromBlock) \
    JOB(gate_up_compute,       gate_up,   Compute,  group,  none)                              \
    JOB(gate_up_wait_slices,   gate_up,   Wait,     group,  gate_up_compute,    1, kFromRank)  \
    JOB(gate_up_activate,      gate_up,   Compute,  group,  none)                              \
    JOB(down_load,             down,      Load,     loader, none)                              \
    JOB(down_wait_input,       down,      Wait,     group,  gate_up_activate,   1, kFromRank)  \
    JOB(down_wait_weights,     down,      Wait,     group,  down_load,          1, kFromBlock) \
    JOB(down_compute,          down,      Compute,  group,  none)                              \
    JOB(down_wait_output,      down,      Wait,     sender, down_compute,       1, kFromBlock) \
    JOB(down_send,             down,      Send,     sender, none)                              \
    JOB(stop2_wait_ranks,      stop2,     Wait,     group,  down_send,          1, kFromRanks) \
    JOB(stop2_sum,             stop2,     Recv,     group,  none)                              \
    JOB(stop2_wait_rows,       stop2,     Wait,     group,  stop2_sum,          1, kFromRank)  \
    JOB(stop2_norm,            stop2,     Compute,  group,  none)                              \
    JOB(qkv_load,              qkv,       Load,     loader, none)                              \
    JOB(first_wait_input,      qkv,       Wait,     group,  embed_norm,         1, kFromRank)  \
    JOB(qkv_wait_input,        qkv,       Wait,     group,  stop2_norm,         1, kFromRank)  \
    JOB(qkv_wait_weights,      qkv,       Wait,     group,  qkv_load,           1, kFromBlock) \
    JOB(qkv_compute,           qkv,       Compute,  group,  none)                              \
    JOB(qkv_wait_slices,       qkv,       Wait,     group,  qkv_compute,        1, kFromRank)  \
    JOB(qkv_rope,              qkv,       Compute,  group,  none)
// clang-format on

MUSETRACE_JOB_TABLE(MuseDraft, "muse_draft", 12, MUSETRACE_MUSE_DRAFT_ROLES, MUSETRACE_MUSE_DRAFT_JOBS);
// Two single warps with one register each, two stamping group warps with three: 2 * 32 + 2 * 96.
static_assert(kSlotMap<MuseDraft>.total == 256);

}  // namespace musetrace::abi

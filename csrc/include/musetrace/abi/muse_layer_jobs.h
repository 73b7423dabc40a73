// The jobs of a Muse Spark Open decode step on the CPU device. A layer launch goes from a layer's attention to the next
// layer's qkv projection and KV write, with the five stops where a rank waits for the others. Around it: the draft's
// context (fc to context) and its layers (attention and o_proj as in the target, then gate_up to down_stop), the tree
// of guesses, and accepting. The one list; device, collector and reader all take it from here.
//
// Twelve warps per block. Warps 4-7 and 8-11 are two groups that move in step, so the first warp of each stamps.
#pragma once

#include "musetrace/abi/job.h"

namespace musetrace::abi {

// clang-format off
//      name       first last  stamping warps
#define MUSETRACE_MUSE_LAYER_ROLES(ROLE)             \
    ROLE(loader,   0,    0,    1u << 0)              \
    ROLE(input,    1,    1,    1u << 1)              \
    ROLE(prefetch, 2,    2,    1u << 2)              \
    ROLE(sender,   3,    3,    1u << 3)              \
    ROLE(group,    4,    11,   1u << 4 | 1u << 8)

//      name                  op         kind      role      awaits
#define MUSETRACE_MUSE_LAYER_JOBS(JOB)                                                          \
    JOB(fc_load,               fc,        Load,     loader,   none)                             \
    JOB(fc_load_input,         fc,        Load,     input,    none)                             \
    JOB(fc_wait_input,         fc,        Wait,     group,    fc_load_input,     1, kFromBlock) \
    JOB(fc_wait_weights,       fc,        Wait,     group,    fc_load,           1, kFromBlock) \
    JOB(fc_compute,            fc,        Compute,  group,    none)                             \
    JOB(fc_wait_output,        fc,        Wait,     sender,   fc_compute,        1, kFromBlock) \
    JOB(fc_send,               fc,        Send,     sender,   none)                             \
    JOB(fc_stop_wait_ranks,    fc_stop,   Wait,     group,    fc_send,           1, kFromRanks) \
    JOB(fc_stop_sum,           fc_stop,   Recv,     group,    none)                             \
    JOB(fc_stop_wait_rows,     fc_stop,   Wait,     group,    fc_stop_sum,       1, kFromRank)  \
    JOB(fc_stop_norm,          fc_stop,   Compute,  group,    none)                             \
    JOB(context_load,          context,   Load,     loader,   none)                             \
    JOB(context_wait_weights,  context,   Wait,     group,    context_load,      1, kFromBlock) \
    JOB(context_compute,       context,   Compute,  group,    none)                             \
    JOB(context_write,         context,   Send,     group,    none)                             \
    JOB(attention_load_k,      attention, Load,     loader,   none)                             \
    JOB(attention_load_v,      attention, Load,     input,    none)                             \
    JOB(attention_load_window, attention, Load,     group,    none)                             \
    JOB(attention_wait_kv,     attention, Wait,     group,    attention_load_v,  1, kFromBlock) \
    JOB(attention_compute,     attention, Compute,  group,    none)                             \
    JOB(attention_merge,       attention, Compute,  group,    none)                             \
    JOB(attention_wait_merge,  attention, Wait,     sender,   attention_merge,   1, kFromBlock) \
    JOB(attention_send,        attention, Send,     sender,   none)                             \
    JOB(exchange_reset,        exchange,  Sync,     sender,   none)                             \
    JOB(o_proj_load,           o_proj,    Load,     loader,   none)                             \
    JOB(o_proj_wait_heads,     o_proj,    Wait,     input,    attention_send,    1, kFromRank)  \
    JOB(o_proj_load_input,     o_proj,    Load,     input,    none)                             \
    JOB(o_proj_wait_input,     o_proj,    Wait,     group,    o_proj_load_input, 1, kFromBlock) \
    JOB(o_proj_wait_weights,   o_proj,    Wait,     group,    o_proj_load,       1, kFromBlock) \
    JOB(o_proj_compute,        o_proj,    Compute,  group,    none)                             \
    JOB(o_proj_wait_output,    o_proj,    Wait,     sender,   o_proj_compute,    1, kFromBlock) \
    JOB(o_proj_send,           o_proj,    Send,     sender,   none)                             \
    JOB(stop1_wait_ranks,      stop1,     Wait,     group,    o_proj_send,       1, kFromRanks) \
    JOB(stop1_sum,             stop1,     Recv,     group,    none)                             \
    JOB(stop1_wait_rows,       stop1,     Wait,     group,    stop1_sum,         1, kFromRank)  \
    JOB(stop1_norm,            stop1,     Compute,  group,    none)                             \
    JOB(pooler_load,           pooler,    Load,     loader,   none)                             \
    JOB(pooler_wait_weights,   pooler,    Wait,     group,    pooler_load,       1, kFromBlock) \
    JOB(pooler_compute,        pooler,    Compute,  group,    none)                             \
    JOB(router_load,           router,    Load,     loader,   none)                             \
    JOB(router_wait_weights,   router,    Wait,     group,    router_load,       1, kFromBlock) \
    JOB(router_compute,        router,    Compute,  group,    none)                             \
    JOB(router_wait_output,    router,    Wait,     sender,   router_compute,    1, kFromBlock) \
    JOB(router_send,           router,    Send,     sender,   none)                             \
    JOB(stop2_wait_ranks,      stop2,     Wait,     group,    router_send,       1, kFromRanks) \
    JOB(stop2_norm,            stop2,     Compute,  group,    none)                             \
    JOB(stop2_topk,            stop2,     Compute,  group,    none)                             \
    JOB(gemm1_prefetch,        gemm1,     Prefetch, prefetch, none)                             \
    JOB(gemm1_wait_tiles,      gemm1,     Wait,     loader,   stop2_topk,        1, kFromBlock) \
    JOB(gemm1_load,            gemm1,     Load,     loader,   none)                             \
    JOB(gemm1_wait_weights,    gemm1,     Wait,     group,    gemm1_load,        1, kFromBlock) \
    JOB(gemm1_compute,         gemm1,     Compute,  group,    none)                             \
    JOB(gemm1_send,            gemm1,     Send,     group,    none)                             \
    JOB(stop3_wait_ranks,      stop3,     Wait,     input,    gemm1_send,        1, kFromRanks) \
    JOB(gemm2_load,            gemm2,     Load,     loader,   none)                             \
    JOB(gemm2_wait_input,      gemm2,     Wait,     group,    gemm1_send,        1, kFromRanks) \
    JOB(gemm2_wait_weights,    gemm2,     Wait,     group,    gemm2_load,        1, kFromBlock) \
    JOB(gemm2_compute,         gemm2,     Compute,  group,    none)                             \
    JOB(gemm2_send,            gemm2,     Send,     group,    none)                             \
    JOB(stop4_wait_ranks,      stop4,     Wait,     group,    gemm2_send,        1, kFromRanks) \
    JOB(stop4_combine,         stop4,     Compute,  group,    none)                             \
    JOB(unpooler_load,         unpooler,  Load,     loader,   none)                             \
    JOB(unpooler_wait_weights, unpooler,  Wait,     group,    unpooler_load,     1, kFromBlock) \
    JOB(unpooler_compute,      unpooler,  Compute,  group,    none)                             \
    JOB(unpooler_wait_output,  unpooler,  Wait,     sender,   unpooler_compute,  1, kFromBlock) \
    JOB(unpooler_send,         unpooler,  Send,     sender,   none)                             \
    JOB(stop5_wait_ranks,      stop5,     Wait,     group,    unpooler_send,     1, kFromRanks) \
    JOB(stop5_sum,             stop5,     Recv,     group,    none)                             \
    JOB(stop5_wait_rows,       stop5,     Wait,     group,    stop5_sum,         1, kFromRank)  \
    JOB(stop5_norm,            stop5,     Compute,  group,    none)                             \
    JOB(gate_up_load,          gate_up,   Load,     loader,   none)                             \
    JOB(gate_up_wait_weights,  gate_up,   Wait,     group,    gate_up_load,      1, kFromBlock) \
    JOB(gate_up_compute,       gate_up,   Compute,  group,    none)                             \
    JOB(gate_up_send,          gate_up,   Send,     group,    none)                             \
    JOB(down_load,             down,      Load,     loader,   none)                             \
    JOB(down_wait_features,    down,      Wait,     input,    gate_up_send,      1, kFromRank)  \
    JOB(down_load_input,       down,      Load,     input,    none)                             \
    JOB(down_wait_input,       down,      Wait,     group,    down_load_input,   1, kFromBlock) \
    JOB(down_wait_weights,     down,      Wait,     group,    down_load,         1, kFromBlock) \
    JOB(down_compute,          down,      Compute,  group,    none)                             \
    JOB(down_wait_output,      down,      Wait,     sender,   down_compute,      1, kFromBlock) \
    JOB(down_send,             down,      Send,     sender,   none)                             \
    JOB(down_stop_wait_ranks,  down_stop, Wait,     group,    down_send,         1, kFromRanks) \
    JOB(down_stop_sum,         down_stop, Recv,     group,    none)                             \
    JOB(down_stop_wait_rows,   down_stop, Wait,     group,    down_stop_sum,     1, kFromRank)  \
    JOB(down_stop_norm,        down_stop, Compute,  group,    none)                             \
    JOB(entry_norm,            entry,     Compute,  group,    none)                             \
    JOB(qkv_load,              qkv,       Load,     loader,   none)                             \
    JOB(qkv_wait_weights,      qkv,       Wait,     group,    qkv_load,          1, kFromBlock) \
    JOB(qkv_compute,           qkv,       Compute,  group,    none)                             \
    JOB(qkv_rope,              qkv,       Compute,  group,    none)                             \
    JOB(kv_write,              kv_write,  Send,     group,    none)                             \
    JOB(lm_head_load,          lm_head,   Load,     loader,   none)                             \
    JOB(lm_head_norm,          lm_head,   Compute,  group,    none)                             \
    JOB(lm_head_wait_weights,  lm_head,   Wait,     group,    lm_head_load,      1, kFromBlock) \
    JOB(lm_head_compute,       lm_head,   Compute,  group,    none)                             \
    JOB(tree_topk,             tree,      Compute,  group,    none)                             \
    JOB(tree_send,             tree,      Send,     group,    none)                             \
    JOB(tree_wait_ranks,       tree,      Wait,     group,    tree_send,         1, kFromRanks) \
    JOB(tree_merge,            tree,      Compute,  group,    none)                             \
    JOB(tree_build,            tree,      Compute,  group,    none)                             \
    JOB(accept_argmax,         accept,    Compute,  group,    none)                             \
    JOB(accept_send,           accept,    Send,     group,    none)                             \
    JOB(accept_wait_ranks,     accept,    Wait,     group,    accept_send,       1, kFromRanks) \
    JOB(accept_choose,         accept,    Compute,  group,    none)                             \
    JOB(accept_walk,           accept,    Compute,  group,    none)                             \
    JOB(accept_keep_kv,        accept,    Send,     group,    none)
// clang-format on

MUSETRACE_JOB_TABLE(MuseLayer, "muse_layer", 12, MUSETRACE_MUSE_LAYER_ROLES, MUSETRACE_MUSE_LAYER_JOBS);
// 4 single warps with one register each, 2 stamping group warps with five: 4 * 32 + 2 * 160.
static_assert(kSlotMap<MuseLayer>.total == 448);

}  // namespace musetrace::abi

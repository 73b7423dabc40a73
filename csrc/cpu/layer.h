// One launch, read as a table: which warp does what, in which order.
#pragma once

#include "cpu/ops/accept.h"
#include "cpu/ops/attention.h"
#include "cpu/ops/context.h"
#include "cpu/ops/ends.h"
#include "cpu/ops/experts.h"
#include "cpu/ops/mlp.h"
#include "cpu/ops/o_proj.h"
#include "cpu/ops/pooler.h"
#include "cpu/ops/qkv.h"
#include "cpu/ops/tree.h"
#include "cpu/ops/unpooler.h"

namespace musetrace::cpu {

template <class W>
bool projects_next(const W& w) {
    return w.launch.layer + 1 < (w.drafts() ? w.draft.layers : w.shape.layers);
}

// Warp 0: all weights of the block, through the ring, across op boundaries.
template <class W>
void loader(W& w) {
    switch (w.launch.kind) {
        case LaunchKind::kEntry:
            return ops::Qkv::load(w, ops::target_projection(w, 0));
        case LaunchKind::kHead:
        case LaunchKind::kDraftHead:
            return ops::LmHead::load(w);
        case LaunchKind::kLayer:
            ops::Attention::Loader::run(w);
            ops::OProj::Loader::run(w);
            ops::Pooler::Loader::run(w);
            ops::Experts::Loader::run(w);
            ops::Unpooler::Loader::run(w);
            if (projects_next(w)) ops::Qkv::load(w, ops::target_projection(w, w.launch.layer + 1));
            return;
        case LaunchKind::kDraftContext:
            ops::Context::Loader::run(w);
            return ops::Qkv::load(w, ops::draft_projection(w, 0));
        case LaunchKind::kDraftLayer:
            ops::Attention::Loader::run(w);
            ops::OProj::Loader::run(w);
            ops::Mlp::Loader::run(w);
            if (projects_next(w)) ops::Qkv::load(w, ops::draft_projection(w, w.launch.layer + 1));
            return;
        case LaunchKind::kDraftTree:
        case LaunchKind::kAccept:
            return;
    }
}

// Warp 1: operands that other blocks or ranks made.
template <class W>
void input(W& w) {
    if (w.launch.kind == LaunchKind::kDraftContext) return ops::Context::Input::run(w);
    if (w.launch.kind != LaunchKind::kLayer && !w.drafts()) return;
    ops::Attention::Input::run(w);
    ops::OProj::Input::run(w);
    if (w.drafts()) return ops::Mlp::Input::run(w);
    ops::Experts::Input::run(w);
}

// Warp 2: what may be wanted soon.
template <class W>
void prefetch(W& w) {
    if (w.launch.kind == LaunchKind::kLayer) ops::Experts::Prefetch::run(w);
}

// Warp 3: dense results to other blocks and ranks; the idle exchange copy made empty for the next launch.
template <class W>
void sender(W& w) {
    w.template job<MuseLayer::exchange_reset>(
        [&] { w.rank.exchange[w.launch.parity ^ 1u].reset(w.block_id(), w.shape.blocks); });
    if (w.launch.kind == LaunchKind::kDraftContext) return ops::Context::Sender::run(w);
    if (w.launch.kind != LaunchKind::kLayer && !w.drafts()) return;
    ops::Attention::Sender::run(w);
    ops::OProj::Sender::run(w);
    if (w.drafts()) return ops::Mlp::Sender::run(w);
    ops::Pooler::Sender::run(w);
    ops::Unpooler::Sender::run(w);
}

// Warps 4-11: attention, all products, sums and norms.
template <class W>
void group(W& w) {
    switch (w.launch.kind) {
        case LaunchKind::kEntry:
            return ops::Entry::group(w);
        case LaunchKind::kHead:
        case LaunchKind::kDraftHead:
            return ops::LmHead::group(w);
        case LaunchKind::kLayer:
            ops::Attention::Group::run(w);
            ops::OProj::Group::run(w);
            ops::Pooler::Group::run(w);
            ops::Experts::Group::run(w);
            ops::Unpooler::Group::run(w);
            if (projects_next(w)) ops::Qkv::group(w, ops::target_projection(w, w.launch.layer + 1));
            return;
        case LaunchKind::kDraftContext:
            ops::Context::Group::run(w);
            return ops::Entry::draft_group(w);
        case LaunchKind::kDraftLayer:
            ops::Attention::Group::run(w);
            ops::OProj::Group::run(w);
            ops::Mlp::Group::run(w);
            if (projects_next(w)) ops::Qkv::group(w, ops::draft_projection(w, w.launch.layer + 1));
            return;
        case LaunchKind::kDraftTree:
            return ops::Tree::group(w);
        case LaunchKind::kAccept:
            return ops::Accept::group(w);
    }
}

template <class W>
void run_warp(W& w) {
    switch (w.waiter.warp) {
        case 0:
            loader(w);
            break;
        case 1:
            input(w);
            break;
        case 2:
            prefetch(w);
            break;
        case 3:
            sender(w);
            break;
        default:
            group(w);
    }
}

}  // namespace musetrace::cpu

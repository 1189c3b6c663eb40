// SPDX-License-Identifier: Apache-2.0
#include "runtime/forward_pass.h"

#include <array>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/format_text.h"
#include "runtime/step_space.h"

namespace minim::runtime {
namespace {

std::vector<std::unique_ptr<RankPass>> one(std::unique_ptr<RankPass> rank) {
    std::vector<std::unique_ptr<RankPass>> ranks;
    ranks.push_back(std::move(rank));
    return ranks;
}

std::vector<std::unique_ptr<RankPass>> one_on(const backend::Backend& backend, Architecture architecture) {
    const std::array stages = {alone_on(backend, architecture.n_layer)};
    return one(std::make_unique<RankPass>(stages, std::move(architecture)));
}

}  // namespace

ForwardPass::ForwardPass(std::span<const Stage> stages, Architecture architecture,
                         std::span<const std::unique_ptr<ExpertPool>> pools)
    : ForwardPass(one(std::make_unique<RankPass>(stages, std::move(architecture), pools)), nullptr) {}

ForwardPass::ForwardPass(const backend::Backend& backend, Architecture architecture)
    : ForwardPass(one_on(backend, std::move(architecture)), nullptr) {}

ForwardPass::ForwardPass(std::vector<std::unique_ptr<RankPass>> ranks, RemoteRanks* remote)
    : ranks_(std::move(ranks)),
      remote_(remote),
      threads_(ranks_.size() > 1 ? std::make_unique<RankThreads>(ranks_.size()) : nullptr) {}

void ForwardPass::step(std::span<const StepRow> rows, StepSpace& space, float* logits,
                       const CancelToken* cancel, const LayerObserver& observer) const {
    step(rows, space, StepOutput{logits, {}}, cancel, observer);
}

// Ends the waits of all ranks because this one has failed. The error names the rank, unless it is another rank's.
void ForwardPass::give_up(const RankPass& rank) const noexcept {
    const Error error = current_error();
    const RankLinks& links = rank.links();
    if (error.status() == Status::cancelled) return;  // all ranks of the group have ended the step
    const Error named(error.status(), error.reason(), format_text("{}: {}", links.name, error.what()),
                      error.facts());
    for (Transport* transport : {links.group, links.pipeline})
        if (transport != nullptr) transport->abandon(named);
    if (links.direct != nullptr) links.direct->end_waits();
}

void ForwardPass::step(std::span<const StepRow> rows, StepSpace& space, const StepOutput& output,
                       const CancelToken* cancel, const LayerObserver& observer,
                       InputObserver* inputs) const {
    if (is_alone())
        return ranks_.front()->step(rows, 0, *space.ranks_.front(), output, cancel, observer, inputs);
    if (inputs != nullptr) fail_internal("the inputs of several ranks are observed");
    const std::lock_guard lock(mutex_);  // all ranks must exchange in the same order
    throw_if_cancelled(cancel, "evaluation");
    if (remote_ != nullptr) remote_->start(space.number_, rows);
    std::vector<std::exception_ptr> errors(ranks_.size());
    const auto compute = [&](size_t r) {
        try {
            ranks_[r]->step(rows, r, *space.ranks_[r], r == 0 ? output : StepOutput(), cancel,
                            r == 0 ? observer : LayerObserver());
        } catch (...) {
            errors[r] = std::current_exception();
            give_up(*ranks_[r]);
        }
    };
    if (threads_) {
        threads_->run(compute);
    } else {
        compute(0);
    }
    for (const std::exception_ptr& error : errors) {
        if (error == nullptr) continue;
        // Which rank failed first is known to the transport alone.
        const RankLinks& links = ranks_.front()->links();
        Transport& transport = *(links.group != nullptr ? links.group : links.pipeline);
        transport.throw_if_abandoned();
        std::rethrow_exception(error);
    }
}

void ForwardPass::refuse_observing() const {
    if (!is_alone())
        fail(Status::unsupported, "importance data is not collected by several ranks yet: use one device");
    for (const Stage& stage : ranks_.front()->stages()) {
        if (stage.cache_bytes > 0)
            fail_on_device(
                stage.backend->name(), Status::unsupported,
                "importance data is not collected with a cache of experts yet: use --expert-cache 0");
        for (int64_t layer = -1; layer < stage.n_layer; ++layer) {
            const backend::Backend& device = layer < 0 ? *stage.backend : *stage.experts_of(layer);
            if (!device.observes_slots())
                fail_on_device(device.name(), Status::unsupported,
                               "importance data is not supported on this device yet: use --device none");
        }
    }
}

void ForwardPass::fetch_logits(StepSpace& space, int64_t wanted_row, float* logits) const {
    ranks_.front()->fetch_logits(*space.ranks_.front(), wanted_row, logits);
}

TopK ForwardPass::top_k(StepSpace& space, int64_t wanted_row, const TopKQuery& query) const {
    return ranks_.front()->top_k(*space.ranks_.front(), wanted_row, query);
}

}  // namespace minim::runtime

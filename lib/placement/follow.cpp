// SPDX-License-Identifier: Apache-2.0
#include "placement/follow.h"

#include <map>
#include <vector>

#include "base/error.h"
#include "kv/page_store.h"
#include "model/shares.h"
#include "ranks/follower.h"
#include "runtime/step_space.h"

namespace minim::placement {
namespace {

class Follower final : public ranks::FollowerCalls {
  public:
    explicit Follower(const model::Model& model) : model_(model) {}

    void make_space(uint32_t space, int64_t n_rows, int64_t n_context) override {
        spaces_.try_emplace(space, model_.forward(), n_rows, n_context);
    }
    void end_space(uint32_t space) noexcept override { spaces_.erase(space); }

    void step(const ranks::StepMessage& step) override {
        const size_t n_parts = model_.placement().shards().size();
        // The addresses of the sequences' pages: of one sequence after another, and of each part by part.
        std::vector<std::vector<std::byte*>> addresses;
        std::vector<backend::KvSequence> views;
        for (const auto& sequence : step.sequences) {
            const kv::PageStore& store = pools_.at(sequence.pool);
            const auto pages = std::span(step.pages).subspan(sequence.first_page, sequence.n_pages);
            for (size_t part = 0; part < n_parts; ++part) {
                addresses.push_back(store.places(pages, part));
                views.push_back({.layout = &store.part_layout(part), .pages = addresses.back()});
            }
        }
        std::vector<runtime::StepRow> rows;
        for (const auto& row : step.rows) {
            const backend::KvSequence* view = &views[static_cast<size_t>(row.sequence) * n_parts];
            rows.push_back({row.token, {view, row.position}, row.wants_logits != 0});
        }
        model_.forward().step(rows, spaces_.at(step.space), runtime::StepOutput(), nullptr);
    }

    void make_pool(uint32_t pool, const backend::KvLayout& whole) override {
        std::vector<kv::PagePart> parts;
        for (const runtime::Shard& shard : model_.placement().shards())
            parts.push_back(model::page_part_of(shard, model_.config()));
        pools_.try_emplace(pool, whole, std::move(parts));
    }
    void end_pool(uint32_t pool) noexcept override { pools_.erase(pool); }
    void add_slab(uint32_t pool, int32_t slab, int64_t n_pages) override {
        kv::PageStore& store = pools_.at(pool);
        store.add(slab, store.allocate(n_pages));
    }
    void drop_slab(uint32_t pool, int32_t slab) noexcept override {
        if (const auto found = pools_.find(pool); found != pools_.end()) found->second.drop(slab);
    }
    void copy(uint32_t pool, backend::KvPage from, backend::KvPage to) noexcept override {
        if (const auto found = pools_.find(pool); found != pools_.end()) found->second.copy(from, to);
    }

    std::vector<std::byte> read(uint32_t pool, backend::KvPage page) override {
        return pools_.at(pool).read_all(page);
    }
    void write(uint32_t pool, backend::KvPage page, std::span<const std::byte> bytes) override {
        pools_.at(pool).write_all(page, bytes);
    }

  private:
    const model::Model& model_;
    std::map<uint32_t, kv::PageStore> pools_;
    std::map<uint32_t, runtime::StepSpace> spaces_;
};

}  // namespace

void follow(const model::Model& model) {
    if (model.process() == 0) fail(Status::invalid, "this process plans the steps, and follows no other");
    Follower follower(model);
    ranks::follow(*model.net().processes, follower);
}

}  // namespace minim::placement

// SPDX-License-Identifier: Apache-2.0
#include "cuda/group_link.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format_text.h"
#include "cuda/debug.h"
#include "cuda/nccl.h"
#include "cuda/peer_sum.h"

namespace minim::cuda {
namespace {

using backend::chunk_of_sum;
using backend::Group;
using backend::GroupChannel;
using backend::GroupLimits;
using backend::SumChunk;

// Sums of at most this many floats that are added in rank order are computed by every rank; of larger ones each rank adds a chunk.
constexpr int64_t k_max_floats_to_all = 16384;
// How long a row of a step may take besides the time that another rank may be silent.
constexpr std::chrono::milliseconds k_patience_a_row{50};

// What all groups of a rank use.
class Link final : public backend::GroupLink, public PeerWatch {
  public:
    Link(const CudaDevice& device, GroupChannel& channel, bool in_rank_order,
         std::unique_ptr<nccl::Communicator> nccl, std::unique_ptr<PeerSum> peers)
        : device_(device),
          channel_(channel),
          in_rank_order_(in_rank_order),
          nccl_(std::move(nccl)),
          peers_(std::move(peers)),
          uses_peers_(peers_ != nullptr && nccl_ == nullptr) {
        ways_.emplace_back(nccl_ ? "NCCL" : "the host");
        if (peers_)
            ways_.emplace_back(peers_->is_direct() ? "a kernel over GPU memory"
                                                   : "a kernel over host memory");
    }

    std::span<const std::string_view> ways() const noexcept override { return ways_; }
    void use_way(size_t way) noexcept override { uses_peers_ = way == 1; }
    uint64_t group_bytes(const GroupLimits& limits) const override;
    GroupLimits over_host(const GroupLimits& limits) const override {
        return nccl_
                   ? GroupLimits()
                   : GroupLimits{.n_sum = limits.n_sum, .hidden = limits.hidden, .n_gather = limits.n_gather};
    }
    std::unique_ptr<Group> make_group(std::unique_ptr<Group> over_host, const GroupLimits& limits) override;
    void end_waits() noexcept override {
        if (peers_) peers_->end_waits();
    }

    std::optional<Error> look(std::chrono::steady_clock::duration waited, int64_t n_rows) noexcept override;

    const CudaDevice& device_;
    GroupChannel& channel_;
    const bool in_rank_order_;
    const std::unique_ptr<nccl::Communicator>
        nccl_;                              // null: sums of more than PeerSum::k_max_floats go over the host
    const std::unique_ptr<PeerSum> peers_;  // null: not possible
    std::vector<std::string_view> ways_;
    bool uses_peers_;  // for sums that it can compute
};

// The group of a space.
class LinkedGroup final : public Group {
  public:
    LinkedGroup(Link& link, std::unique_ptr<Group> over_host, const GroupLimits& limits)
        : link_(link), over_host_(std::move(over_host)) {
        if (const uint64_t bytes = link.group_bytes(limits); bytes > 0)
            parts_ = link.device_.allocate(bytes, "sums over ranks", backend::MemoryUse::work);
    }

    int32_t rank() const noexcept override { return link_.channel_.rank(); }
    int32_t size() const noexcept override { return link_.channel_.size(); }
    bool records() const noexcept override { return link_.nccl_ != nullptr; }
    bool shares_slots() const noexcept override { return false; }

    void sum(Scratch& scratch, float* data, int64_t count) override {
        if (count == 0) return;
        if (link_.uses_peers_ && count <= PeerSum::k_max_floats) {
            start(scratch, [&](runtime::Stream stream) { link_.peers_->start(stream, data, count); });
        } else if (link_.nccl_ == nullptr) {
            over_host_->sum(scratch, data, count);
        } else if (!link_.in_rank_order_) {
            start(scratch, [&](runtime::Stream stream) { link_.nccl_->all_reduce(data, count, stream); });
        } else if (count <= k_max_floats_to_all) {
            sum_to_all(scratch, data, count);
        } else {
            sum_by_chunks(scratch, data, count);
        }
    }

    void share_slots(Scratch& scratch, const int32_t* ids, int64_t n_slots, int64_t hidden,
                     float* out) override {
        over_host_->share_slots(scratch, ids, n_slots, hidden, out);
    }

    void gather_rows(Scratch& scratch, const float* part, int64_t n, int64_t width, float* whole) override {
        if (link_.nccl_ == nullptr) return over_host_->gather_rows(scratch, part, n, width, whole);
        nccl::Communicator& nccl = *link_.nccl_;
        start(scratch, [&](runtime::Stream stream) {
            nccl.together([&] {
                for (int64_t row = 0; row < n; ++row) {
                    if (rank() != 0) nccl.send(part + row * width, width, 0, stream);
                    for (int32_t r = 1; rank() == 0 && r < size(); ++r)
                        nccl.receive(whole + (row * size() + r) * width, width, r, stream);
                }
            });
        });
        for (int64_t row = 0; rank() == 0 && row < n; ++row)
            link_.device_.copy_in(scratch, whole + row * size() * width, part + row * width, width);
    }

    void go_on(const CancelToken* cancel) override { over_host_->go_on(cancel); }

    void abandon(const Error& error) noexcept override {
        over_host_->abandon(error);
        link_.end_waits();
    }

  private:
    template <typename Start>
    void start(Scratch& scratch, const Start& call) const {
        link_.device_.start_in(scratch, &link_, call);
    }
    float* parts() const noexcept { return reinterpret_cast<float*>(parts_->data()); }

    void sum_to_all(Scratch& scratch, float* data, int64_t count) {
        nccl::Communicator& nccl = *link_.nccl_;
        start(scratch, [&](runtime::Stream stream) {
            nccl.together([&] {
                for (int32_t r = 0; r < size(); ++r) {
                    if (r == rank()) continue;
                    nccl.send(data, count, r, stream);
                    nccl.receive(parts() + r * count, count, r, stream);
                }
            });
            fast::add_parts(stream, parts(), count, size(), rank(), data);
        });
    }

    void sum_by_chunks(Scratch& scratch, float* data, int64_t count) {
        nccl::Communicator& nccl = *link_.nccl_;
        const SumChunk mine = chunk_of_sum(count, rank(), size());
        // Calls visit(rank, its chunk) for the other ranks whose chunks and whose own are not empty.
        const auto exchange = [&](const auto& visit) {
            nccl.together([&] {
                for (int32_t r = 0; r < size(); ++r)
                    if (r != rank()) visit(r, chunk_of_sum(count, r, size()));
            });
        };
        start(scratch, [&](runtime::Stream stream) {
            const auto send = [&](int32_t to, const SumChunk& range) {
                if (range.size() > 0) nccl.send(data + range.begin, range.size(), to, stream);
            };
            exchange([&](int32_t r, const SumChunk& theirs) {
                send(r, theirs);
                if (mine.size() > 0) nccl.receive(parts() + r * mine.size(), mine.size(), r, stream);
            });
            fast::add_parts(stream, parts(), mine.size(), size(), rank(), data + mine.begin);
            exchange([&](int32_t r, const SumChunk& theirs) {
                send(r, mine);
                if (theirs.size() > 0) nccl.receive(data + theirs.begin, theirs.size(), r, stream);
            });
        });
    }

    Link& link_;
    const std::unique_ptr<Group> over_host_;
    std::unique_ptr<backend::Memory> parts_;  // of all ranks, of a sum in rank order; null: there are none
};

uint64_t Link::group_bytes(const GroupLimits& limits) const {
    if (nccl_ == nullptr || !in_rank_order_) return 0;
    const int64_t n_ranks = channel_.size();
    const int64_t n_to_all = std::min(limits.n_sum, k_max_floats_to_all) * n_ranks;
    const int64_t n_chunks = limits.n_sum + n_ranks * (backend::k_chunk_floats + 1);
    return static_cast<uint64_t>(std::max(n_to_all, n_chunks)) * sizeof(float);
}

std::unique_ptr<Group> Link::make_group(std::unique_ptr<Group> over_host, const GroupLimits& limits) {
    return std::make_unique<LinkedGroup>(*this, std::move(over_host), limits);
}

std::optional<Error> Link::look(std::chrono::steady_clock::duration waited, int64_t n_rows) noexcept {
    std::optional<Error> error;
    try {
        channel_.throw_if_abandoned();
        // Once it is ended, NCCL is asked no more; that happens only after the group has been abandoned.
        if (nccl_ && !nccl_->has_ended()) error = nccl_->error();
        const auto limit = channel_.timeout() + n_rows * k_patience_a_row;
        if (!error && waited > limit)
            error =
                Error(Status::peer_lost, Reason::none,
                      format_text("{}: another rank has not taken part in a step for {} s", device_.name(),
                                  std::chrono::duration_cast<std::chrono::seconds>(limit).count()));
        if (error) channel_.abandon(*error);
    } catch (...) {
        error = current_error();
    }
    if (!error) return std::nullopt;
    end_waits();
    if (nccl_) nccl_->end();
    return error;
}

// ---- connecting ----

// What a rank says of its library.
struct Offer {
    int32_t version = 0;  // 0: it has none
    nccl::UniqueId id;    // of rank 0
    char why_not[256] = "";
};

std::unique_ptr<nccl::Communicator> connect_by_nccl(const CudaDevice& device, GroupChannel& channel,
                                                    std::string& why_not) {
    std::shared_ptr<const nccl::Library> library;
    if (debug_switches().nccl) {
        library = nccl::open(why_not);
    } else {
        why_not = "MINIM_CUDA_DEBUG says no-nccl";
    }
    Offer own;
    if (library) {
        own.version = library->version;
        if (channel.rank() == 0) own.id = nccl::make_unique_id(*library);
    }
    why_not.copy(own.why_not, sizeof(own.why_not) - 1);
    std::vector<Offer> offers(channel.size());
    channel.exchange(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(offers)));
    for (size_t r = 0; r < offers.size(); ++r) {
        if (offers[r].version == 0) {
            why_not = format_text(
                "rank {} has no NCCL {} or later: {}; the Python package nvidia-nccl-cu13 or NVIDIA's "
                "package libnccl2 has it",
                r, nccl::version_text(nccl::k_oldest_version), offers[r].why_not);
            return nullptr;
        }
        if (offers[r].version != offers[0].version) {
            why_not =
                format_text("rank {} has version {} of NCCL, and rank 0 version {}", r,
                            nccl::version_text(offers[r].version), nccl::version_text(offers[0].version));
            return nullptr;
        }
    }
    // NCCL may refuse what it is asked for, as two ranks of one GPU; then all ranks go without. If a rank is lost, the exchange throws.
    std::unique_ptr<nccl::Communicator> made;
    own.version = offers[0].version;  // from here on: whether it is connected
    try {
        made = std::make_unique<nccl::Communicator>(std::move(library), offers[0].id, device.index(),
                                                    std::string(device.name()), channel);
    } catch (const Error& error) {
        own.version = 0;
        std::string_view(error.what()).copy(own.why_not, sizeof(own.why_not) - 1);
    }
    channel.exchange(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(offers)));
    for (size_t r = 0; r < offers.size(); ++r) {
        if (offers[r].version != 0) continue;
        why_not = format_text("rank {}: {}", r, offers[r].why_not);
        return nullptr;
    }
    return made;
}

}  // namespace

std::unique_ptr<backend::GroupLink> connect_devices(const CudaDevice& device, GroupChannel& channel,
                                                    bool in_rank_order, std::string& remark) {
    if (channel.size() == 1) return nullptr;
    std::string why_not;
    std::unique_ptr<nccl::Communicator> nccl = connect_by_nccl(device, channel, why_not);
    std::unique_ptr<PeerSum> peers;
    if (debug_switches().peer_sum) peers = PeerSum::make(device, channel);
    if (nccl == nullptr)
        remark =
            format_text("{} over GPUs go through host memory, which makes prompts several times slower: {}",
                        peers ? "large sums" : "sums", why_not);
    if (nccl == nullptr && peers == nullptr) return nullptr;
    return std::make_unique<Link>(device, channel, in_rank_order, std::move(nccl), std::move(peers));
}

}  // namespace minim::cuda

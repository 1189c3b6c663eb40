// SPDX-License-Identifier: Apache-2.0
#include "cuda/peer_sum.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace minim::cuda {
namespace {

using fast::PeerBox;

// Returns what every rank says.
template <typename X>
std::vector<X> all_of(backend::GroupChannel& channel, const X& own) {
    std::vector<X> all(channel.size());
    channel.exchange(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
    return all;
}

// Returns whether every rank says yes.
bool agree(backend::GroupChannel& channel, bool own) {
    const std::vector<uint8_t> all = all_of(channel, static_cast<uint8_t>(own));
    return std::ranges::all_of(all, [](uint8_t one) { return one != 0; });
}

// Memory of the device with zeros; null if there is none.
std::unique_ptr<backend::Memory> zeros(const CudaDevice& device, uint64_t bytes) {
    try {
        std::unique_ptr<backend::Memory> memory =
            device.allocate(bytes, "sums over ranks", backend::MemoryUse::work);
        const std::vector<std::byte> none(bytes);
        device.write(memory->data(), none.data(), bytes);
        return memory;
    } catch (const Error& error) {
        if (error.status() != Status::out_of_device_memory) throw;
        return nullptr;
    }
}

}  // namespace

// Pinned host memory, of rank 0's device; it ends with the last rank.
struct PeerSum::Shared {
    Shared(int32_t device_index, int32_t n_ranks)
        : device(device_index),
          bytes(sizeof(PeerBox) * static_cast<size_t>(n_ranks + 1)),
          block(static_cast<std::byte*>(runtime::allocate_host(device_index, bytes))) {
        if (block != nullptr) std::fill_n(block, bytes, std::byte(0));
    }
    ~Shared() {
        if (block != nullptr) runtime::release_host(device, block);
    }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;

    PeerBox* box(int32_t rank) const { return reinterpret_cast<PeerBox*>(block) + rank; }
    uint32_t* is_abandoned(int32_t n_ranks) const { return &box(n_ranks)->turn[0].value; }

    const int32_t device;
    const uint64_t bytes;
    std::byte* const block;  // a box for each rank, and one whose first turn says that the group is abandoned
};

std::unique_ptr<PeerSum> PeerSum::make(const CudaDevice& device, backend::GroupChannel& channel) {
    if (!channel.is_one_process() || channel.size() > fast::k_max_peers) return nullptr;
    std::unique_ptr<PeerSum> sum(new PeerSum);
    if (!sum->share(device, channel)) return nullptr;
    sum->is_direct_ = sum->write_directly(device, channel);
    if (!sum->is_direct_) sum->write_to_host();
    return sum;
}

// Gets the memory that all ranks share.
bool PeerSum::share(const CudaDevice& device, backend::GroupChannel& channel) {
    peers_.rank = channel.rank();
    peers_.n_ranks = channel.size();
    if (peers_.rank == 0) shared_ = std::make_shared<Shared>(device.index(), peers_.n_ranks);
    const std::shared_ptr<Shared>* const of_first = all_of(channel, &std::as_const(shared_)).front();
    if (peers_.rank != 0) shared_ = *of_first;
    if (!agree(channel, shared_->block != nullptr)) return false;  // and all have it
    turns_ = zeros(device, fast::k_peer_blocks * sizeof(uint32_t));
    if (!agree(channel, turns_ != nullptr)) return false;
    peers_.turns = reinterpret_cast<uint32_t*>(turns_->data());
    peers_.is_abandoned = is_abandoned_ = shared_->is_abandoned(peers_.n_ranks);
    return true;
}

// Has all ranks write into the memory of the others' devices, if they can.
bool PeerSum::write_directly(const CudaDevice& device, backend::GroupChannel& channel) {
    struct Place {
        int32_t device;
        std::byte* boxes;
    };
    box_ = zeros(device, sizeof(PeerBox) * static_cast<size_t>(peers_.n_ranks));
    const std::vector<Place> places =
        all_of(channel, Place{device.index(), box_ == nullptr ? nullptr : box_->data()});
    const bool reaches_all = std::ranges::all_of(places, [&](const Place& place) {
        return place.boxes != nullptr && runtime::reach_peer(device.index(), place.device);
    });
    if (agree(channel, reaches_all)) {
        for (int32_t r = 0; r < peers_.n_ranks; ++r) {
            if (r == peers_.rank) continue;
            peers_.to[peers_.n_to++] = reinterpret_cast<PeerBox*>(places[r].boxes) + peers_.rank;
            peers_.from[r] = reinterpret_cast<const PeerBox*>(box_->data()) + r;
        }
        if (agree(channel, test_writes(device, channel))) return true;
    }
    box_.reset();
    return false;
}

// Has all ranks write into the host's memory, each once.
void PeerSum::write_to_host() {
    peers_.n_to = 1;
    peers_.to[0] = shared_->box(peers_.rank);
    for (int32_t r = 0; r < peers_.n_ranks; ++r)
        peers_.from[r] = r == peers_.rank ? nullptr : shared_->box(r);
}

// Returns whether what the other ranks write arrives here: some machines with an IOMMU lose it without an error.
bool PeerSum::test_writes(const CudaDevice& device, backend::GroupChannel& channel) const {
    const auto seed_of = [](int32_t rank) { return static_cast<float>(100'000 * (rank + 1)); };
    runtime::Stream stream = runtime::make_stream(device.index());
    bool is_well = stream != nullptr;
    if (is_well) {
        runtime::use(device.index());
        fast::write_peers(stream, peers_, seed_of(peers_.rank));
        is_well = runtime::last_error() == nullptr && runtime::synchronize(device.index(), stream) == nullptr;
        runtime::end_stream(device.index(), stream);
    }
    if (!agree(channel, is_well)) return false;
    std::vector<PeerBox> boxes(peers_.n_ranks);
    device.read(reinterpret_cast<std::byte*>(boxes.data()), box_->data(), box_->size());
    for (int32_t r = 0; r < peers_.n_ranks; ++r) {
        if (r == peers_.rank) continue;
        const auto* const floats = reinterpret_cast<const float*>(boxes[r].floats[0]);
        for (int i = 0; i < fast::k_max_peer_floats; ++i)
            is_well = is_well && floats[i] == seed_of(r) + static_cast<float>(i);
    }
    return is_well;
}

}  // namespace minim::cuda

#include "model/pack_weights.h"

#include <vector>

namespace minim::model {
namespace {

struct Packer {
    const backend::Backend& backend;
    const Writable& writable;
    const CancelToken* cancel;

    void pack(backend::Matrix& matrix) const {
        std::byte* data = writable(matrix.data);
        if (data == nullptr || !backend.packs(matrix.format)) return;
        throw_if_cancelled(cancel, "loading");
        backend.pack({&data, 1}, matrix);
        matrix.packed = true;
    }

    void pack(backend::ExpertStack& stack) const {
        if (stack.expert.empty() || !backend.packs(stack.format)) return;
        std::vector<std::byte*> data;
        for (const std::byte* expert : stack.expert) {
            data.push_back(writable(expert));
            if (data.back() == nullptr) return;
        }
        throw_if_cancelled(cancel, "loading");
        backend.pack(data, stack.matrix(0));
        stack.packed = true;
    }
};

}  // namespace

void pack_matrix(const backend::Backend& backend, const Writable& writable, backend::Matrix& matrix,
                 const CancelToken* cancel) {
    Packer{backend, writable, cancel}.pack(matrix);
}

void pack_attention(const backend::Backend& backend, const Writable& writable, LayerWeights& layer,
                    const CancelToken* cancel) {
    const Packer packer = {backend, writable, cancel};
    for (backend::Matrix* matrix : {&layer.wq, &layer.wk, &layer.wv, &layer.wo}) packer.pack(*matrix);
}

void pack_experts(const backend::Backend& backend, const Writable& writable, LayerWeights& layer,
                  const CancelToken* cancel) {
    const Packer packer = {backend, writable, cancel};
    packer.pack(layer.experts.gate);
    packer.pack(layer.experts.up);
    packer.pack(layer.experts.down);
}

void pack_weights(const backend::Backend& backend, const Writable& writable, Weights& weights,
                  const CancelToken* cancel) {
    for (LayerWeights& layer : weights.layers) {
        pack_attention(backend, writable, layer, cancel);
        pack_experts(backend, writable, layer, cancel);
    }
    // A head that shares its tensor with the embedding is read row by row there.
    if (weights.output.data != weights.embedding.data) pack_matrix(backend, writable, weights.output, cancel);
}

}  // namespace minim::model

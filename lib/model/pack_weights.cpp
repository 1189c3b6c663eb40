#include "model/pack_weights.h"

#include <vector>

namespace minim::model {
namespace {

struct Packer {
    const backend::Backend& backend;
    const CancelToken* cancel;

    void matrix(backend::Matrix& matrix, MatrixUse use) const {
        if (use == MatrixUse::rows || !backend.packs(matrix.format)) return;
        throw_if_cancelled(cancel, "loading");
        std::byte* data = const_cast<std::byte*>(matrix.data);
        backend.pack({&data, 1}, matrix);
        matrix.packed = true;
    }
    void vector(backend::Vector&) const {}
    void stack(backend::ExpertStack& stack) const {
        if (stack.expert.empty() || !backend.packs(stack.format)) return;
        throw_if_cancelled(cancel, "loading");
        std::vector<std::byte*> data;
        for (const std::byte* expert : stack.expert) data.push_back(const_cast<std::byte*>(expert));
        backend.pack(data, stack.matrix(0));
        stack.packed = true;
    }
};

}  // namespace

void pack_share(const Share& share, Weights& weights, const CancelToken* cancel) {
    Packer packer{*share.backend, cancel};
    visit_share(share, weights, packer);
}

}  // namespace minim::model

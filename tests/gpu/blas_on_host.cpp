// SPDX-License-Identifier: Apache-2.0
// cuda/blas.h on host memory.
#include "gpu/blas_on_host.h"

#include <cstring>

#include "base/half.h"
#include "gpu/recorder.h"

namespace minim::cuda::blas {
namespace {

class FakePlan : public Plan {
  public:
    FakePlan(const Problem& problem, uint64_t workspace_bytes)
        : problem_(problem), workspace_bytes_(workspace_bytes) {}

    const char* multiply(const Operands& operands, void* workspace, void*) const override {
        if (test::fake_blas().failure != nullptr) return test::fake_blas().failure;
        test::finish_kernels();
        ++test::fake_blas().n_products;
        std::memset(workspace, 0x55, workspace_bytes_);  // the library may overwrite it
        const auto* weight = static_cast<const uint16_t*>(operands.weight);
        for (int64_t i = 0; i < problem_.n; ++i) {
            for (int64_t r = 0; r < problem_.rows; ++r) {
                float sum = 0.0F;
                for (int64_t c = 0; c < problem_.cols; ++c)
                    sum += wide(weight[r * problem_.cols + c]) * wide(operands.x[i * problem_.cols + c]);
                float& y = operands.y[i * problem_.rows + r];
                y = operands.scale * sum + (operands.add ? y : 0.0F);
            }
        }
        return nullptr;
    }

  private:
    float wide(uint16_t bits) const {
        return problem_.format == Format::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
    }

    const Problem problem_;
    const uint64_t workspace_bytes_;
};

class FakeLibrary : public Library {
  public:
    std::unique_ptr<Plan> plan(const Problem& problem, uint64_t workspace_bytes) override {
        test::fake_blas().asked.push_back(problem);
        if (test::fake_blas().has_no_way) return nullptr;
        return std::make_unique<FakePlan>(problem, workspace_bytes);
    }
};

}  // namespace

std::unique_ptr<Library> open(int32_t, std::string& why_not) {
    why_not = test::fake_blas().why_not;
    if (!why_not.empty()) return nullptr;
    return std::make_unique<FakeLibrary>();
}

}  // namespace minim::cuda::blas

// SPDX-License-Identifier: Apache-2.0
#include "cuda/blas.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#include <dlfcn.h>

#include <type_traits>

#include "base/format_text.h"
#include "cuda/runtime.h"

namespace minim::cuda::blas {
namespace {

constexpr uint32_t k_alignment = 16;

// The functions of the library, in the version whose header this file was compiled with.
struct Functions {
    decltype(&cublasLtCreate) create = nullptr;
    decltype(&cublasLtDestroy) destroy = nullptr;
    decltype(&cublasLtMatmulDescCreate) make_product = nullptr;
    decltype(&cublasLtMatmulDescDestroy) end_product = nullptr;
    decltype(&cublasLtMatmulDescSetAttribute) set_product = nullptr;
    decltype(&cublasLtMatrixLayoutCreate) make_layout = nullptr;
    decltype(&cublasLtMatrixLayoutDestroy) end_layout = nullptr;
    decltype(&cublasLtMatmulPreferenceCreate) make_preference = nullptr;
    decltype(&cublasLtMatmulPreferenceDestroy) end_preference = nullptr;
    decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
    decltype(&cublasLtMatmulAlgoGetHeuristic) choose = nullptr;
    decltype(&cublasLtMatmul) multiply = nullptr;
    decltype(&cublasLtGetStatusString) text = nullptr;
};

// The loaded library. It is loaded at most once for each device and never unloaded, because it registers itself with
// the driver.
struct Loaded {
    void* handle = nullptr;
    Functions functions;
    std::string why_not;
};

Loaded load() {
    Loaded loaded;
    const std::string name = format_text("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
    loaded.handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (loaded.handle == nullptr) {
        loaded.why_not = ::dlerror();
        return loaded;
    }
    const auto bind = [&](auto& function, const char* symbol) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(loaded.handle, symbol));
        if (function == nullptr && loaded.why_not.empty())
            loaded.why_not = format_text("{} has no {}", name, symbol);
    };
    Functions& f = loaded.functions;
    bind(f.create, "cublasLtCreate");
    bind(f.destroy, "cublasLtDestroy");
    bind(f.make_product, "cublasLtMatmulDescCreate");
    bind(f.end_product, "cublasLtMatmulDescDestroy");
    bind(f.set_product, "cublasLtMatmulDescSetAttribute");
    bind(f.make_layout, "cublasLtMatrixLayoutCreate");
    bind(f.end_layout, "cublasLtMatrixLayoutDestroy");
    bind(f.make_preference, "cublasLtMatmulPreferenceCreate");
    bind(f.end_preference, "cublasLtMatmulPreferenceDestroy");
    bind(f.set_preference, "cublasLtMatmulPreferenceSetAttribute");
    bind(f.choose, "cublasLtMatmulAlgoGetHeuristic");
    bind(f.multiply, "cublasLtMatmul");
    bind(f.text, "cublasLtGetStatusString");
    return loaded;
}

const Loaded& loaded() {
    static const Loaded once = load();
    return once;
}

// The library counts rows along a column: W is cols x rows and transposed, x is cols x n, y is rows x n.
class LtPlan : public Plan {
  public:
    LtPlan(const Functions& f, cublasLtHandle_t handle) : f_(f), handle_(handle) {}
    ~LtPlan() override {
        if (y_ != nullptr) f_.end_layout(y_);
        if (x_ != nullptr) f_.end_layout(x_);
        if (weight_ != nullptr) f_.end_layout(weight_);
        if (product_ != nullptr) f_.end_product(product_);
    }
    LtPlan(const LtPlan&) = delete;
    LtPlan& operator=(const LtPlan&) = delete;

    // Returns whether the library can compute the problem.
    bool make(const Problem& problem, uint64_t workspace_bytes) {
        const cudaDataType_t type = problem.format == Format::bf16 ? CUDA_R_16BF : CUDA_R_16F;
        const auto rows = static_cast<uint64_t>(problem.rows);
        const auto cols = static_cast<uint64_t>(problem.cols);
        const auto n = static_cast<uint64_t>(problem.n);
        const cublasOperation_t transposed = CUBLAS_OP_T;
        const bool is_described =
            f_.make_product(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
            f_.set_product(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)) ==
                CUBLAS_STATUS_SUCCESS &&
            f_.make_layout(&weight_, type, cols, rows, problem.cols) == CUBLAS_STATUS_SUCCESS &&
            f_.make_layout(&x_, type, cols, n, problem.cols) == CUBLAS_STATUS_SUCCESS &&
            f_.make_layout(&y_, CUDA_R_32F, rows, n, problem.rows) == CUBLAS_STATUS_SUCCESS;
        return is_described && choose(workspace_bytes);
    }

    const char* multiply(const Operands& operands, void* workspace, void* stream) const override {
        const float beta = operands.add ? 1.0F : 0.0F;
        const cublasStatus_t status = f_.multiply(
            handle_, product_, &operands.scale, operands.weight, weight_, operands.x, x_, &beta, operands.y,
            y_, operands.y, y_, &way_.algo, workspace, way_.workspaceSize, static_cast<cudaStream_t>(stream));
        return status == CUBLAS_STATUS_SUCCESS ? nullptr : f_.text(status);
    }

  private:
    bool choose(uint64_t workspace_bytes) {
        cublasLtMatmulPreference_t preference = nullptr;
        if (f_.make_preference(&preference) != CUBLAS_STATUS_SUCCESS) return false;
        bool is_set = f_.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                        &workspace_bytes, sizeof(workspace_bytes)) == CUBLAS_STATUS_SUCCESS;
        for (const auto operand :
             {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
            is_set = is_set && f_.set_preference(preference, operand, &k_alignment, sizeof(k_alignment)) ==
                                   CUBLAS_STATUS_SUCCESS;
        int count = 0;
        const bool has_way = is_set &&
                             f_.choose(handle_, product_, weight_, x_, y_, y_, preference, 1, &way_,
                                       &count) == CUBLAS_STATUS_SUCCESS &&
                             count > 0 && way_.state == CUBLAS_STATUS_SUCCESS;
        f_.end_preference(preference);
        return has_way;
    }

    const Functions& f_;
    const cublasLtHandle_t handle_;
    cublasLtMatmulDesc_t product_ = nullptr;
    cublasLtMatrixLayout_t weight_ = nullptr;
    cublasLtMatrixLayout_t x_ = nullptr;
    cublasLtMatrixLayout_t y_ = nullptr;
    cublasLtMatmulHeuristicResult_t way_ = {};
};

class LtLibrary : public Library {
  public:
    LtLibrary(const Functions& f, cublasLtHandle_t handle, int32_t device)
        : f_(f), handle_(handle), device_(device) {}
    ~LtLibrary() override {
        runtime::use(device_);
        f_.destroy(handle_);
    }
    LtLibrary(const LtLibrary&) = delete;
    LtLibrary& operator=(const LtLibrary&) = delete;

    std::unique_ptr<Plan> plan(const Problem& problem, uint64_t workspace_bytes) override {
        auto plan = std::make_unique<LtPlan>(f_, handle_);
        if (!plan->make(problem, workspace_bytes)) return nullptr;
        return plan;
    }

  private:
    const Functions& f_;
    const cublasLtHandle_t handle_;
    const int32_t device_;
};

}  // namespace

std::unique_ptr<Library> open(int32_t device, std::string& why_not) {
    const Loaded& library = loaded();
    why_not = library.why_not;
    if (!why_not.empty()) return nullptr;
    runtime::use(device);
    cublasLtHandle_t handle = nullptr;
    const cublasStatus_t status = library.functions.create(&handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        why_not = library.functions.text(status);
        return nullptr;
    }
    return std::make_unique<LtLibrary>(library.functions, handle, device);
}

}  // namespace minim::cuda::blas

#else

namespace minim::cuda::blas {

std::unique_ptr<Library> open(int32_t, std::string& why_not) {
    why_not = "its header was not there when this was built";
    return nullptr;
}

}  // namespace minim::cuda::blas
#endif

#include "model/model.h"

#include "handles.h"
#include "placement/backends.h"
#include "structs.h"

using namespace minim;
using namespace minim::capi;

namespace {

checkpoint::Residence residence_of(int32_t residence) {
    if (residence == MINIM_RESIDENCE_MAPPED) return checkpoint::Residence::mapped;
    if (residence == MINIM_RESIDENCE_OWNED) return checkpoint::Residence::owned;
    fail(Status::invalid, "residence is {}; mapped (0) and owned (1) are known", residence);
}

int64_t parameter_count(const checkpoint::Checkpoint& checkpoint) {
    int64_t total = 0;
    for (const checkpoint::Tensor& tensor : checkpoint.tensors()) {
        if (tensor.bytes == 0) continue;  // it may claim any other dimensions
        int64_t count = 1;
        for (const int64_t dimension : tensor.shape) count *= dimension;
        total += count;
    }
    return total;
}

uint64_t weight_bytes(const checkpoint::Checkpoint& checkpoint) {
    uint64_t total = 0;
    for (const checkpoint::Tensor& tensor : checkpoint.tensors()) total += tensor.bytes;
    return total;
}

}  // namespace

minim_status minim_model_open(minim_runtime* runtime, const char* path, const minim_model_params* params,
                              minim_cancel* cancel, minim_model** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        const std::shared_ptr<Runtime> shared = required(runtime, "runtime").runtime;
        const minim_model_params p = params_of(params, "minim_model_params");
        model::OpenOptions options;
        options.residence = residence_of(p.residence);
        options.cancel = token_of(cancel);
        options.engine_tokenizer = p.engine_tokenizer != 0;
        if (p.progress != nullptr) {
            options.progress = [&p](uint64_t done, uint64_t total) {
                return p.progress(p.progress_user_data, done, total) == 0;
            };
        }
        auto backend = placement::make_backend(p.backend == nullptr ? "" : p.backend, shared->threads,
                                               shared->cpu_level);
        auto model = std::make_shared<const model::Model>(&required(path, "path"), std::move(backend),
                                                          options, shared->log);
        *out = new minim_model{{shared, std::move(model)}};
    });
}

void minim_model_close(minim_model* model) {
    delete model;
}

minim_status minim_model_get_info(const minim_model* model, minim_model_info* out, minim_error* err) {
    return guard(err, [&] {
        const model::Model& m = required(model, "model").model();
        const model::Config& config = m.config();
        minim_model_info info{};
        info.n_layer = static_cast<int32_t>(config.n_layer);
        info.hidden = config.hidden;
        info.n_head = static_cast<int32_t>(config.n_head);
        info.n_head_kv = static_cast<int32_t>(config.n_head_kv);
        info.head_dim = static_cast<int32_t>(config.head_dim);
        info.rotary_dim = static_cast<int32_t>(config.rotary_dim);
        info.n_expert = static_cast<int32_t>(config.n_expert);
        info.n_expert_used = static_cast<int32_t>(config.n_expert_used);
        info.expert_ff = config.expert_ff;
        info.n_vocab = config.n_vocab;
        info.n_context_train = config.n_context_train;
        info.n_parameters = parameter_count(m.checkpoint());
        info.weight_bytes = weight_bytes(m.checkpoint());
        info.kv_token_bytes_f16 =
            static_cast<uint64_t>(config.n_layer * 2 * config.n_head_kv * config.head_dim * 2);
        info.rope_theta = config.rope_theta;
        info.name = config.name.c_str();
        info.backend = m.backend().name().data();
        result_to(out, "minim_model_info", info);
    });
}

minim_status minim_model_checkpoint(const minim_model* model, minim_checkpoint** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        const OpenModel& open = required(model, "model").open;
        // The checkpoint lives inside the model: share the model's ownership.
        *out = new minim_checkpoint{open.runtime, {open.model, &open.model->checkpoint()}};
    });
}

// SPDX-License-Identifier: Apache-2.0
#include "engine/importance.h"

#include <memory>
#include <string>
#include <utility>

#include "checkpoint/importance_file.h"
#include "handles.h"
#include "structs.h"
#include "texts.h"

using namespace minim;
using namespace minim::capi;

namespace {

engine::ImportanceParams importance_params(const minim_importance_params& p) {
    engine::ImportanceParams params;
    params.dataset = optional_text(p.dataset);
    if (p.chunk_size < 0) fail(Status::invalid, "chunk_size is {}; it must not be negative", p.chunk_size);
    if (p.chunk_size > 0) params.chunk_size = p.chunk_size;
    params.with_head = flag(p.process_output, "process_output");
    params.text_hash = p.text_hash;
    return params;
}

checkpoint::ImportanceForm importance_form(int32_t format, const char* path) {
    switch (format) {
        case MINIM_IMPORTANCE_AUTO:
            return checkpoint::importance_form_of(path);
        case MINIM_IMPORTANCE_GGUF:
            return checkpoint::ImportanceForm::gguf;
        case MINIM_IMPORTANCE_DAT:
            return checkpoint::ImportanceForm::dat;
        default:
            fail(Status::invalid, "format is {}; auto (0), gguf (1) and dat (2) are known", format);
    }
}

}  // namespace

minim_status minim_importance_create(minim_model* model, const minim_importance_params* params,
                                     minim_importance** out, minim_error* err) {
    return guard(err, DevicesOf(model), [&] {
        required(out, "out") = nullptr;
        const OpenModel& open = computing(required(model, "model"));
        const engine::ImportanceParams p = importance_params(params_of(params, "minim_importance_params"));
        *out = new minim_importance{open.runtime, std::make_unique<engine::Importance>(open.model, p)};
    });
}

void minim_importance_free(minim_importance* importance) {
    delete importance;
}

minim_status minim_importance_attach(const minim_importance* importance, minim_session* session,
                                     minim_error* err) {
    return guard(err, DevicesOf(session), [&] {
        const SessionUse use(required(session, "session"));
        if (importance == nullptr) return session->session->observe(nullptr);
        const engine::Importance& data = *importance->importance;
        if (data.inputs() == nullptr)
            fail(Status::invalid,
                 "importance data of a file collects nothing: create a handle for the model");
        if (data.model() != session->open.model.get())
            fail(Status::invalid, "the importance data is of another model than the session");
        session->session->observe(data.inputs());
    });
}

minim_status minim_importance_merge(minim_importance* importance, const minim_importance* other,
                                    minim_error* err) {
    return guard(err, [&] {
        required(importance, "importance").importance->merge(*required(other, "other").importance);
    });
}

minim_status minim_importance_save(const minim_importance* importance, const char* path, int32_t format,
                                   minim_error* err) {
    return guard(err, [&] {
        const engine::Importance& data = *required(importance, "importance").importance;
        data.save(&required(path, "path"), importance_form(format, path));
    });
}

minim_status minim_importance_load(const char* path, int32_t chunk_size, minim_importance** out,
                                   minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        if (chunk_size < 0) fail(Status::invalid, "chunk_size is {}; it must not be negative", chunk_size);
        *out = new minim_importance{nullptr,
                                    std::make_unique<engine::Importance>(
                                        checkpoint::read_importance(&required(path, "path")), chunk_size)};
    });
}

minim_status minim_importance_describe(const minim_importance* importance, minim_text** out,
                                       minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        *out = new minim_text{engine::to_json(required(importance, "importance").importance->data())};
    });
}

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "check/files.h"
#include "check/machine.h"
#include "check/probe.h"
#include "check/reference.h"
#include "handles.h"
#include "structs.h"
#include "texts.h"

using namespace minim;
using namespace minim::capi;

namespace {

struct CloseModel {
    void operator()(minim_model* model) const noexcept { minim_model_close(model); }
};
using OwnedModel = std::unique_ptr<minim_model, CloseModel>;

// Opens the model for what is computed with it. Throws what minim_model_open says.
OwnedModel open_for_probe(minim_runtime* runtime, const char* path, const minim_check_params& p,
                          minim_cancel* cancel) {
    minim_error err = MINIM_ERROR_INIT;
    minim_model* model = nullptr;
    if (minim_model_open(runtime, path, p.model, cancel, &model, &err) != MINIM_OK)
        throw Error(static_cast<Status>(err.status), static_cast<Reason>(err.reason), err.message);
    return OwnedModel(model);
}

// What is computed with the model. Returns the record of its answers; "": it was not wanted.
std::string compute(minim_runtime* runtime, const char* path, const minim_check_params& p,
                    minim_cancel* cancel, const check::Opened& opened, const check::Reading& reading,
                    check::Report& report) {
    const OwnedModel handle = open_for_probe(runtime, path, p, cancel);
    const std::shared_ptr<const model::Model>& model = handle->open.model;
    const Runtime& shared = *runtime->runtime;
    const check::Answers answers = check::check_probe(model, reading.cancel, shared.log, report);
    if (p.machine != 0) {
        std::vector<std::shared_ptr<const backend::Backend>> devices;
        for (const runtime::Shard& shard : model->placement().shards())
            if (std::ranges::find(devices, shard.backend) == devices.end()) devices.push_back(shard.backend);
        check::check_machine(opened, devices, shared.threads, shared.cpu_level, reading, report);
    }
    if (answers.empty()) return {};  // a fault that the report has
    if (p.answers != nullptr) check::check_answers(answers, *model, p.answers, report);
    return p.wants_answers != 0 ? check::to_json(answers, model->fingerprint()) : std::string();
}

std::string with_member(std::string object, std::string_view key, std::string_view text) {
    object.pop_back();
    object += ", ";
    json::append_quoted(object, key);
    object += ": ";
    json::append_quoted(object, text);
    return object + "}";
}

std::string check_all(minim_runtime* runtime, const char* path, const minim_check_params& p,
                      minim_cancel* cancel) {
    const Runtime& shared = *runtime->runtime;
    const bool is_quick = flag(p.quick, "quick");
    const checkpoint::Progress progress = [&p](uint64_t done, uint64_t total) {
        return p.progress == nullptr || p.progress(p.progress_user_data, done, total) == 0;
    };
    const check::Reading reading{shared.threads.prompt.get(), &progress, token_of(cancel), is_quick};

    check::Report report;
    std::string sums;
    std::string answers;
    const std::optional<check::Opened> opened = check::open_files(path, report, shared.log);
    if (opened) {
        check::check_configuration(*opened, report);
        check::check_vocabulary(*opened, report, shared.log);
        check::check_tensors(*opened, reading, report);
        if (p.sums != nullptr) check::check_sums(*opened, p.sums, reading, report);
        if (flag(p.wants_sums, "wants_sums")) sums = check::sums_of(opened->checkpoint, reading);
        if (p.reference != nullptr) {
            check::Report of_reference;
            const auto reference = check::open_files(p.reference, of_reference, shared.log);
            if (!reference)
                fail(Status::invalid, "the reference does not open: {}", of_reference.faults.front().detail);
            check::check_reference(*opened, *reference, reading, report);
        }
        const bool has_bad_numbers = std::ranges::any_of(report.faults, [](const check::Finding& fault) {
            return fault.kind == check::FaultClass::nan || fault.kind == check::FaultClass::tokenizer;
        });
        // Bad numbers would be found once more, and a bad tokenizer does not open.
        if (!is_quick && !has_bad_numbers)
            answers = compute(runtime, path, p, cancel, *opened, reading, report);
    }
    std::string text = check::to_json(report);
    if (!sums.empty()) text = with_member(std::move(text), "sums", sums);
    if (!answers.empty()) text = with_member(std::move(text), "answers", answers);
    return text;
}

}  // namespace

minim_status minim_check(minim_runtime* runtime, const char* path, const minim_check_params* params,
                         minim_cancel* cancel, minim_text** report, minim_error* err) {
    return guard(err, [&] {
        required(report, "report") = nullptr;
        required(runtime, "runtime").runtime->require_threads();
        const minim_check_params p = params_of(params, "minim_check_params");
        const bool computes =
            flag(p.wants_answers, "wants_answers") || p.answers != nullptr || flag(p.machine, "machine");
        if (flag(p.quick, "quick") && computes)
            fail(Status::invalid,
                 "a quick check computes nothing: no answers, and no products of the machine");
        *report = new minim_text{check_all(runtime, &required(path, "path"), p, cancel)};
    });
}

// SPDX-License-Identifier: Apache-2.0
// Tests that weights with NaN or infinity, wherever they are and wherever the model lies, end in an error that names the tensor.
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "checkpoint/checkpoint.h"
#include "engine/generation.h"
#include "sim/devices.h"
#include "sim/expert_caches.h"
#include "support/catch.h"
#include "support/helpers.h"
#include "support/requests.h"

namespace minim::test {
namespace {

constexpr size_t k_q8_0_block = 34;  // bytes: an F16 scale, 32 codes

std::vector<char> bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// The bundled model with a bad number in one tensor: in one element of floats, or in the scale of every block.
struct BadModel {
    BadModel(const std::string& tensor_name, bool is_nan) {
        std::vector<char> bytes = bytes_of(bundled_model_path());
        const auto checkpoint = checkpoint::Checkpoint::open(bundled_model_path(), Logger());
        const checkpoint::Tensor* tensor = checkpoint.find(tensor_name);
        REQUIRE(tensor != nullptr);
        char* data = bytes.data() + tensor->offset;
        if (tensor->format == Format::f32) {
            const float value = is_nan ? NAN : -std::numeric_limits<float>::infinity();
            std::memcpy(data + 3 * sizeof(value), &value, sizeof(value));
        } else {
            REQUIRE(tensor->format == Format::q8_0);
            const uint16_t scale = is_nan ? 0x7E01 : 0x7C00;
            for (size_t at = 0; at < tensor->bytes; at += k_q8_0_block)
                std::memcpy(data + at, &scale, sizeof(scale));
        }
        std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
    }
    TemporaryFolder folder;
    std::string path = folder / "bad.gguf";
};

using OpenPath = std::function<std::shared_ptr<const model::Model>(const std::string& path)>;

// Checks what a caller sees who opens the model and evaluates, generates, or submits a request.
void check_error(const OpenPath& open, const std::string& path, const std::string& tensor) {
    const std::vector<int32_t> ids = some_ids(70);
    const std::string message = "the model's weights are not finite: tensor " + tensor + " has ";
    expect_error(Status::format, message, [&] {
        engine::Session session = make_session(open(path), 100);
        std::vector<float> logits(static_cast<size_t>(session.model().config().n_vocab));
        session.eval(ids, false, logits, nullptr);
    });
    expect_error(Status::format, message, [&] {
        engine::Session session = make_session(open(path), 100);
        engine::GenerateParams params;
        params.max_tokens = 3;
        engine::Generation generation(session, params, ids, nullptr);
        while (generation.next(nullptr)) {
        }
    });
    expect_error(Status::format, message, [&] {
        const Logger silent;
        engine::Engine engine(open(path), engine_params(256), silent);
        result_of(*engine.submit(ids, tokens_wanted(3)));
    });
}

}  // namespace

TEST_CASE("weights that are not finite are named, in whatever tensor they are") {
    const OpenPath on_cpu = [](const std::string& path) { return model_on_cpu(path); };
    for (const char* tensor :
         {"token_embd.weight", "blk.0.attn_norm.weight", "blk.1.attn_q_norm.weight", "blk.2.ffn_norm.weight",
          "blk.1.ffn_gate_inp.weight", "blk.0.exp_probs_b.bias", "blk.0.attn_q.weight",
          "blk.2.attn_output.weight", "blk.1.ffn_gate_exps.weight", "blk.2.ffn_down_exps.weight",
          "output_norm.weight", "output.weight"}) {
        for (const bool is_nan : {true, false}) {
            CAPTURE(tensor, is_nan);
            const BadModel bad(tensor, is_nan);
            check_error(on_cpu, bad.path, tensor);
        }
    }
}

TEST_CASE("weights that are not finite are named on devices too, with experts cached or on the host") {
    const Devices devices = make_devices(2);
    const std::vector<OpenPath> places = {
        [&](const std::string& path) { return model_on(devices, {}, path); },
        [&](const std::string& path) {
            return with_cache(devices, 1 << 19, runtime::ExpertMoves::reproducible, path);
        },
    };
    for (const char* tensor : {"blk.1.ffn_up_exps.weight", "blk.2.attn_v.weight", "output.weight"}) {
        const BadModel bad(tensor, true);
        for (const OpenPath& open : places) {
            CAPTURE(tensor);
            check_error(open, bad.path, tensor);
        }
    }
}

}  // namespace minim::test

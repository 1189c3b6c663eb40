#include "model/headers.h"

#include "base/error.h"
#include "checkpoint/text_file.h"

namespace minim::model {
namespace {

using checkpoint::Checkpoint;

constexpr uint64_t k_largest_text_file = uint64_t{256} << 20;

}  // namespace

std::string side_file(const Checkpoint& checkpoint, const char* name, bool required) {
    try {
        return checkpoint::read_text_file(checkpoint.folder() + "/" + name, k_largest_text_file);
    } catch (const Error& error) {
        if (error.status() == Status::not_found && !required) return {};
        throw;
    }
}

Config read_config(const Checkpoint& checkpoint, const Logger& log) {
    if (checkpoint.kind() == Checkpoint::Kind::gguf) return config_from_gguf(checkpoint.metadata(), log);
    return config_from_json(side_file(checkpoint, "config.json", true), log);
}

}  // namespace minim::model

#include "model/headers.h"

#include "model/side_file.h"

namespace minim::model {

Config read_config(const checkpoint::Checkpoint& checkpoint, const Logger& log) {
    if (checkpoint.kind() == checkpoint::Checkpoint::Kind::gguf)
        return config_from_gguf(checkpoint.metadata(), log);
    return config_from_json(side_file(checkpoint, "config.json", true), log);
}

}  // namespace minim::model

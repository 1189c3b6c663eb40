#include "model/choose_residence.h"

#include "base/memory_info.h"

namespace minim::model {

checkpoint::Residence choose_residence(std::optional<checkpoint::Residence> wanted, uint64_t bytes,
                                       bool packs, const Logger& log) {
    using checkpoint::Residence;
    if (wanted) return *wanted;
    if (!packs) return Residence::mapped;
    const uint64_t available = available_memory_bytes();
    if (bytes <= available - available / 10) return Residence::owned;
    log.warning(
        "weights of {} bytes stay in their file, where they are read more slowly than from a packed file: "
        "of {} bytes of available memory, less than a tenth would be left",
        bytes, available);
    return Residence::mapped;
}

}  // namespace minim::model

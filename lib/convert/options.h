// SPDX-License-Identifier: Apache-2.0
// What a conversion is asked to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/gguf_writer.h"
#include "convert/folder_layout.h"
#include "convert/metadata_edits.h"
#include "convert/rules.h"
#include "format/encode/encode_rows.h"

namespace minim::convert {

struct Options {
    std::string source;                       // any checkpoint that opens; of a split file any part
    std::string output;                       // NAME.gguf, or the folder
    std::optional<FolderLayout> layout = {};  // of a folder; nothing: a GGUF file
    bool has_any_name = false;                // the output's name does not say which of them it is
    TypeOptions types = {};
    bool is_quantize = false;  // the metadata state the quantisation
    std::string imatrix = {};  // a file of importance data; "": none
    std::vector<std::string> include_weights = {};
    std::vector<std::string> exclude_weights = {};
    bool goes_without_importance = false;  // types that need importance data are encoded without
    EncodeEffort effort = EncodeEffort::full;
    std::string name = {};  // general.name; "": the source's
    std::vector<MetadataEdit> edits = {};
    checkpoint::PartLimits limits = {};
    std::string keep_experts = {};  // how many of each layer, or a file that lists them; "": all
    std::string reuse = {};         // an earlier output; "": none
    bool keeps_split = false;       // parts as the source's
    bool writes_hashes = true;      // minim.tensor_xxh3
    bool overwrites = false;
    bool restarts = false;  // an unfinished output is thrown away
    bool verifies = true;
    uint64_t memory_bytes = uint64_t{2} << 30;  // the most memory beside the program itself
    std::string program_version;                // of the library; for minim.version and the journal
};

}  // namespace minim::convert

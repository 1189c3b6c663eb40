// SPDX-License-Identifier: Apache-2.0
// POST /slots/{id}?action=save|restore|erase, as llama.cpp has it: the prompt state of a conversation is written to a file, read from
// one, or dropped. The conversation of a slot is the last one that was answered in it, or restored to it.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "routes.h"

namespace server {

namespace {

constexpr std::string_view k_slots_path = "/slots/";
constexpr size_t k_longest_filename = 255;  // bytes, as on usual file systems

enum class SlotAction { save, restore, erase };

int64_t slot_of(const std::string& path, int64_t n_slots) {
    const std::string_view number = std::string_view(path).substr(k_slots_path.size());
    int64_t slot = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), slot);
    if (error != std::errc() || end != number.data() + number.size() || slot < 0 || slot >= n_slots)
        throw ApiError{
            404, fmt::format("there is no slot '{}'; slots are 0 to {}", number.substr(0, 40), n_slots - 1),
            "", "not_found"};
    return slot;
}

SlotAction action_of(const std::string& query) {
    const std::string action = query_value(query, "action");
    if (action == "save") return SlotAction::save;
    if (action == "restore") return SlotAction::restore;
    if (action == "erase") return SlotAction::erase;
    throw ApiError{400, fmt::format("the action '{}' is not save, restore or erase", action.substr(0, 40)),
                   "action", ""};
}

// Returns the path of the file that the request names: in the folder itself, and not hidden.
std::string file_of(const HttpRequest& http, const std::string& folder, Json& answer) {
    if (folder.empty())
        throw ApiError{501, "slots are neither saved nor restored: the server has no --slot-save-path", "",
                       "not_supported"};
    const Json body = parse_body(http.body);
    const std::string filename = Fields(body).required_text("filename");
    const auto is_bad = [](char c) { return c == '/' || c == '\\' || static_cast<unsigned char>(c) < ' '; };
    if (filename.empty() || filename.size() > k_longest_filename || filename.front() == '.' ||
        std::ranges::any_of(filename, is_bad))
        throw ApiError{
            400,
            fmt::format("filename '{}' is not the name of a file: 1 to {} bytes, without slashes and "
                        "control characters, not with a dot at the start",
                        filename.substr(0, 100), k_longest_filename),
            "filename", ""};
    answer["filename"] = filename;
    return folder + '/' + filename;
}

uint64_t bytes_of_file(const std::string& path) {
    std::error_code error;
    const uint64_t bytes = std::filesystem::file_size(path, error);
    return error ? 0 : bytes;
}

// Converts an error of the library. The message names the file without its folder.
ApiError refused(const minim::Exception& error, const std::string& folder) {
    std::string message = error.what();
    for (size_t at = 0; (at = message.find(folder + '/')) != std::string::npos;)
        message.erase(at, folder.size() + 1);
    const int32_t status = error.status();
    const bool is_theirs = status == MINIM_E_FORMAT || status == MINIM_E_INVALID;
    return {status == MINIM_E_NOT_FOUND ? 404 : is_theirs ? 400 : 503, message, "", ""};
}

}  // namespace

Prepared slot_action(const HttpRequest& http, ServedModel& served) {
    const auto started = std::chrono::steady_clock::now();
    const auto ms = [&] {
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - started).count();
    };
    const std::string& folder = served.options.slot_save_path;
    const int64_t slot = slot_of(http.path, served.n_slots);
    const SlotAction action = action_of(http.query);
    const auto conversation = served.jobs.conversation(slot);
    if (!conversation)
        throw ApiError{409, fmt::format("slot {} is answering a request: try again when it has ended", slot),
                       "", "slot_is_busy"};
    Json answer = {{"id_slot", slot}};
    try {
        if (action == SlotAction::erase) {
            answer["n_erased"] = served.engine.erase_prefix(*conversation);
            served.jobs.set_conversation(slot, {});
        } else if (action == SlotAction::restore) {
            const std::string path = file_of(http, folder, answer);
            const minim::Tokens tokens = served.engine.load_prefix(path);
            served.jobs.set_conversation(slot, {tokens.begin(), tokens.end()});
            answer["n_restored"] = tokens.size();
            answer["n_read"] = bytes_of_file(path);
            answer["timings"] = {{"restore_ms", ms()}};
        } else {
            const std::string path = file_of(http, folder, answer);
            if (conversation->empty())
                throw ApiError{
                    400, fmt::format("slot {} has answered nothing yet: nothing can be saved", slot), "", ""};
            answer["n_saved"] = served.engine.save_prefix(*conversation, path);
            answer["n_written"] = bytes_of_file(path);
            answer["timings"] = {{"save_ms", ms()}};
        }
    } catch (const minim::Exception& error) {
        throw refused(error, folder);
    }
    HttpResponse response;
    response.body = to_text(answer);
    return response;
}

}  // namespace server
